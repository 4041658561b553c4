"""Who decides how kernels start: a kernelspec, then the user's configuration or environment, then this extension."""

from __future__ import annotations

import pytest
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.provisioning import LocalProvisioner
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_vgpu_provisioner import VgpuProvisioner
from traitlets.config import Config

EXTENSION = {"ServerApp": {"jpserver_extensions": {"jupyter_vgpu": True}}}


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr("jupyter_vgpu.server.monitor.choose", lambda environ: None)
    monkeypatch.delenv("JUPYTER_DEFAULT_PROVISIONER_NAME", raising=False)


def provisioner(**metadata):
    factory = KernelProvisionerFactory.instance()
    return type(factory.create_provisioner_instance("k", KernelSpec(display_name="x", metadata=metadata), parent=None))


def test_ours_is_used_where_nobody_chose(jp_configurable_serverapp):
    jp_configurable_serverapp(config=Config(EXTENSION))
    assert provisioner() is VgpuProvisioner


def test_kernelspecs_own_choice_wins(jp_configurable_serverapp):
    jp_configurable_serverapp(config=Config(EXTENSION))
    assert provisioner(kernel_provisioner={"provisioner_name": "local-provisioner"}) is LocalProvisioner


def test_configured_choice_stays(jp_configurable_serverapp):
    jp_configurable_serverapp(config=Config({**EXTENSION, "KernelProvisionerFactory": {"default_provisioner_name": "local-provisioner"}}))
    assert provisioner() is LocalProvisioner


def test_choice_in_the_environment_stays(jp_configurable_serverapp, monkeypatch):
    monkeypatch.setenv("JUPYTER_DEFAULT_PROVISIONER_NAME", "local-provisioner")
    jp_configurable_serverapp(config=Config(EXTENSION))
    assert provisioner() is LocalProvisioner


def test_where_ours_is_not_installed_the_servers_default_stays(jp_configurable_serverapp, monkeypatch):
    entries = {"local-provisioner": "jupyter_client.provisioning:LocalProvisioner"}
    monkeypatch.setattr(KernelProvisionerFactory, "get_provisioner_entries", lambda self: entries)
    jp_configurable_serverapp(config=Config(EXTENSION))
    assert KernelProvisionerFactory.instance().default_provisioner_name == "local-provisioner"


def test_behind_a_gateway_the_extension_is_passive(jp_configurable_serverapp):
    app = jp_configurable_serverapp(config=Config({**EXTENSION, "GatewayClient": {"url": "http://gateway.example:8888"}}))
    extension = app.web_app.settings["jupyter_vgpu"]
    assert extension.watcher is None
    assert KernelProvisionerFactory.instance().default_provisioner_name == "local-provisioner"
    assert "gateway.example" in extension.monitor._idle_reason
