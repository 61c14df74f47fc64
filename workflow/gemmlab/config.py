"""config/config.yaml: read, completed by what --config says, validated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gemmlab.files import read_yaml, repository_root
from gemmlab.schema import validate

Config = dict[str, Any]


def load_config(path: Path | None = None) -> Config:
    """The validated configuration.

    Args:
        path: a YAML file; config/config.yaml of the repository if left out.

    Raises:
        GemmlabError: a key is unknown, missing or of the wrong kind; the message names it.
    """
    path = path or repository_root() / "config" / "config.yaml"
    config = read_yaml(path)
    validate_config(config, str(path))
    return config


def validate_config(config: Config, where: str = "configuration") -> None:
    """Raise GemmlabError that names the faulty key of `config`."""
    validate(config, "config", where)
