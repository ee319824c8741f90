"""The users of the API server: its token file, and a kubeconfig for each user."""

from __future__ import annotations

import base64
import json
import secrets
from pathlib import Path

# user -> its groups. `dovetail` and `nobody` have no rights until a test binds them to a role.
USERS = {
    "admin": "system:masters",
    "system:kube-scheduler": "",
    "dovetail": "system:serviceaccounts,system:serviceaccounts:kube-system",
    "nobody": "",
}
# The API server's name of a user, if it differs: the ServiceAccount for which deploy/ is written.
NAMES = {"dovetail": "system:serviceaccount:kube-system:dovetail-scheduler"}


class Users:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.tokens = {user: secrets.token_hex(16) for user in USERS}
        self.token_file = folder / "tokens.csv"
        lines = [f'{self.tokens[user]},{NAMES.get(user, user)},{user},"{groups}"' for user, groups in USERS.items()]
        self.token_file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.token_file.chmod(0o600)

    def kubeconfig(self, user: str, port: int, authority: Path) -> Path:
        """A kubeconfig that kubectl and every client library can read: JSON is valid YAML."""
        cluster = {
            "server": f"https://127.0.0.1:{port}",
            "certificate-authority-data": base64.b64encode(authority.read_bytes()).decode(),
        }
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "loopback", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self.tokens[user]}}],
            "contexts": [{"name": user, "context": {"cluster": "loopback", "user": user}}],
            "current-context": user,
        }
        path = self._folder / f"{user.replace(':', '-')}.kubeconfig"
        path.write_text(json.dumps(document, indent=2), encoding="utf-8")
        path.chmod(0o600)
        return path


def service_account_key(path: Path) -> Path:
    """Write a new P-256 key, which the API server needs to start.

    It has the SEC1 form; readers compute the public half.
    """
    secret = (1 + secrets.randbelow(2**255)).to_bytes(32, "big")
    der = bytes.fromhex("30310201010420") + secret + bytes.fromhex("a00a06082a8648ce3d030107")
    body = base64.b64encode(der).decode()
    lines = [body[start : start + 64] for start in range(0, len(body), 64)]
    path.write_text("\n".join(["-----BEGIN EC PRIVATE KEY-----", *lines, "-----END EC PRIVATE KEY-----", ""]))
    path.chmod(0o600)
    return path
