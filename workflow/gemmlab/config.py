"""config/config.yaml: read, completed by what --config says, validated."""

from __future__ import annotations

import re
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
    """Raise GemmlabError that names the faulty key of `config`.

    Whole numbers inside lists and objects that came as text become numbers first, in place: Snakemake's --config
    leaves them so. Text that only looks like one (08, 1e3, 1k) is refused.
    """
    for key, value in config.items():
        if isinstance(value, dict | list):
            config[key] = _with_numbers(value)
    validate(config, "config", where)


def _with_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_numbers(item) for item in value]
    if isinstance(value, str) and re.fullmatch(r"-?(0|[1-9]\d*)", value):
        return int(value)
    return value
