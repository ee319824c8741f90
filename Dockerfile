# docker build -t dovetail:dev .
# The base image by its digest: --build-arg BASE=python:3.11-slim@sha256:…  (docs/supply-chain.md says how to find it)
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /src
# Every package by the hashes of requirements.txt, which the tests run with: pip refuses any other file. Wheels only, so
# that no package runs code of its own here.
COPY deploy/requirements-build.txt deploy/requirements-live.txt ./deploy/
ENV PIP_REQUIRE_HASHES=1 PIP_ONLY_BINARY=:all: PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/build && /opt/build/bin/pip install -r deploy/requirements-build.txt
RUN python -m venv /opt/dovetail && /opt/dovetail/bin/pip install -r deploy/requirements-live.txt
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
COPY examples/demo ./examples/demo
RUN /opt/build/bin/python -m hatchling build -t wheel -d /src/dist
RUN PIP_REQUIRE_HASHES=0 /opt/dovetail/bin/pip install --no-deps --no-index /src/dist/dovetail-*.whl

FROM ${BASE}
COPY --from=build /opt/dovetail /opt/dovetail
# Kernels are compiled here, not when the first pod comes. numba keeps code apart by processor: "generic" is found on every
# machine of the architecture. Policies that are not in this list are compiled in the background when a pod names them.
ENV NUMBA_CPU_NAME=generic DOVETAIL_KERNELS=/opt/dovetail/kernels
RUN DOVETAIL_CACHE_DIR=/opt/dovetail/kernels /opt/dovetail/bin/dovetail warm \
    binpack:binpack binpack:spread spread:binpack spread:spread binpack:topology-aware fgd snug
# `warm` makes them for their owner alone; here everybody may read them, and only root may write.
RUN chmod -R u=rwX,go=rX /opt/dovetail/kernels
# docker build --build-arg VERSION=$(.venv/bin/dovetail --version | cut -d' ' -f3) --build-arg REVISION=$(git rev-parse HEAD)
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title=dovetail \
    org.opencontainers.image.description="A device-aware GPU scheduler for Kubernetes" \
    org.opencontainers.image.licenses=Apache-2.0 \
    org.opencontainers.image.version=${VERSION} \
    org.opencontainers.image.revision=${REVISION}
USER 65532
ENTRYPOINT ["/opt/dovetail/bin/dovetail"]
