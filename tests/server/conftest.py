"""A Jupyter server with the extension, under a base_url that needs quoting (jp_base_url)."""

from __future__ import annotations

import json

import pytest
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_server.gateway.gateway_client import GatewayClient

# Not as a plugin: its automatic fixtures would make a server's singleton for every test of the whole suite.
from pytest_jupyter.jupyter_server import *  # noqa: F403
from tornado.httpclient import HTTPClientError

from tests.arbiter import contract


@pytest.fixture(autouse=True)
def own_singletons():
    """Factory and gateway client are singletons of the process; a test's choice must not be the next one's."""
    for singleton in (KernelProvisionerFactory, GatewayClient):
        singleton.clear_instance()
    yield
    for singleton in (KernelProvisionerFactory, GatewayClient):
        singleton.clear_instance()


@pytest.fixture
def jp_server_config():
    return {"ServerApp": {"jpserver_extensions": {"jupyter_vgpu": True}}}


@pytest.fixture
def ask(jp_fetch):
    """One request to the extension, the answer held against openapi.yaml: (status, value)."""

    async def request(method, path, body=None, *, raw=None, **kwargs):
        content = raw if raw is not None else None if body is None else json.dumps(body)
        route, _, query = path.partition("?")
        params = dict(pair.split("=") for pair in query.split("&")) if query else None
        try:
            response = await jp_fetch("vgpu", "api", *route.strip("/").split("/"), method=method, body=content, params=params, **kwargs)
        except HTTPClientError as error:
            response = error.response
        return response.code, contract.check(method, path, response.code, response.body)

    return request
