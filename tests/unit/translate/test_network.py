"""hostAliases, dnsConfig and dnsPolicy."""

from __future__ import annotations

from typing import Any

import pytest

from slurmrest_adapter.domain.errors import Invalid
from slurmrest_adapter.domain.pod import view
from slurmrest_adapter.domain.podplan import DnsPlan, PodPlan
from slurmrest_adapter.translate.pod import Ownership, translate
from slurmrest_adapter.translate.site import Site


def plan(**spec: Any) -> PodPlan:
    raw = {
        "metadata": {"name": "p", "namespace": "n", "uid": "4c5f6a0e-0000-4000-8000-000000000001"},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}], **spec},
    }
    return translate(view(raw), Ownership("alice"), Site("lab"), b"k" * 32, "/d").plan


def test_aliases() -> None:
    made = plan(hostAliases=[{"ip": "10.0.0.1", "hostnames": ["a", "b.c"]}, {"ip": "::1"}])
    assert made.host_aliases == (("10.0.0.1", ("a", "b.c")),)


def test_without_a_word_the_nodes_resolver_is_the_pods() -> None:
    assert plan(dnsPolicy="ClusterFirst", dnsConfig={}).dns is None


def test_the_resolver() -> None:
    config = {
        "nameservers": ["10.0.0.53"],
        "searches": ["a.example", "_b.example."],
        "options": [{"name": "ndots", "value": "5"}, {"name": "rotate"}],
    }
    words = (("10.0.0.53",), ("a.example", "_b.example."), ("ndots:5", "rotate"))
    assert plan(dnsConfig=config).dns == DnsPlan(True, *words)
    assert plan(dnsConfig=config, dnsPolicy="None").dns == DnsPlan(False, *words)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"hostAliases": [{"ip": "x", "hostnames": ["a"]}]}, "spec.hostAliases[0].ip"),
        ({"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a\nb"]}]}, "spec.hostAliases[0].hostnames[0]"),
        ({"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a b"]}]}, "spec.hostAliases[0].hostnames[0]"),
        ({"dnsPolicy": "None"}, "spec.dnsConfig.nameservers"),
        ({"dnsPolicy": "None", "dnsConfig": {"searches": ["a"]}}, "spec.dnsConfig.nameservers"),
        ({"dnsConfig": {"nameservers": ["1.1.1.1"] * 4}}, "spec.dnsConfig.nameservers"),
        ({"dnsConfig": {"nameservers": ["one"]}}, "spec.dnsConfig.nameservers[0]"),
        ({"dnsConfig": {"searches": ["a\nnameserver 6.6.6.6"]}}, "spec.dnsConfig.searches[0]"),
        ({"dnsConfig": {"searches": ["a"] * 33}}, "spec.dnsConfig.searches"),
        ({"dnsConfig": {"options": [{"value": "1"}]}}, "spec.dnsConfig.options[0].name"),
        ({"dnsConfig": {"options": [{"name": "a b"}]}}, "spec.dnsConfig.options[0].name"),
        ({"dnsConfig": {"options": [{"name": "a", "value": "\n"}]}}, "spec.dnsConfig.options[0].value"),
    ],
)
def test_what_is_wrong_is_named(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        plan(**spec)
    assert caught.value.field == field
