"""Puts the dashboard into a wheel. An editable install does without: `make web` builds it there."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SKIP = "SPAREWATT_SKIP_WEB"


class WebHook(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        if version == "editable" or os.environ.get(SKIP):
            return
        path = Path(self.root) / "web" / "build.py"
        if not path.exists():
            return  # built from an sdist, which carries what was built
        spec = importlib.util.spec_from_file_location("web_build", path)
        if spec is None or spec.loader is None:
            raise ImportError(path)
        web = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(web)
        try:
            web.build()
        except web.NoNode as error:
            self.app.display_warning(f"This wheel has no dashboard. {error}")
