"""What a feature adds to the HTTP server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from fastapi import APIRouter
from pydantic import BaseModel

from duckicelake.features.registry import load_hooks
from duckicelake.server.auth.permissions import NEEDS, Need


@dataclass(frozen=True, slots=True)
class FeatureRoutes:
    """The routes of a feature.

    Attributes:
        needs: who may use each route, by method and route template.
        request_models: bodies that endpoints parse in their own thread, which FastAPI does not see.

    """

    routers: tuple[APIRouter, ...]
    needs: Mapping[tuple[str, str], Need]
    request_models: tuple[type[BaseModel], ...] = field(default=())


@cache
def load_routes() -> tuple[FeatureRoutes, ...]:
    """Import the routes of the installed features."""
    return load_hooks(FeatureRoutes, "routes")


def list_needs() -> dict[tuple[str, str], Need]:
    """List who may use each route, those of features included."""
    return dict(NEEDS) | {route: need for feature in load_routes() for route, need in feature.needs.items()}
