# docker build -t dovetail:dev .
FROM python:3.11-slim AS build
WORKDIR /src
COPY requirements.txt pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/dovetail && /opt/dovetail/bin/pip install --no-cache-dir ".[live]"

FROM python:3.11-slim
COPY --from=build /opt/dovetail /opt/dovetail
USER 65532
ENTRYPOINT ["/opt/dovetail/bin/dovetail"]
