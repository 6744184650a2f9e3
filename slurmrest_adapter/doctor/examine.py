"""All checks in their order. What needs something that failed is skipped, and says so."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slurmrest_adapter.config import DEFAULT_PATH, MapLine, Settings, load
from slurmrest_adapter.doctor import cluster, files, findings, jobs, nodes, rest
from slurmrest_adapter.doctor.script import doctor_script
from slurmrest_adapter.doctor.verdict import Check, Verdict, fail, ok, skip, warn
from slurmrest_adapter.domain.errors import ConfigError, SlurmError
from slurmrest_adapter.domain.jobs import NodeInfo
from slurmrest_adapter.identity.base import Owner
from slurmrest_adapter.slurm.base import SlurmGateway
from slurmrest_adapter.slurm.build import TokenSettings, token_source
from slurmrest_adapter.slurm.tokens import NoToken, TokenSource

IDENTITY = "identity"
# Everything that is asked of Slurm, in order; skipped together when Slurm cannot be asked.
_OF_SLURM = (rest.VERSION, rest.TOKEN, rest.USERS, cluster.SLURMCTLD, cluster.PARTITION, cluster.GRES)
_OF_NODES = (findings.JOB, findings.PLUGINS, *nodes.ON_NODE)


@dataclass
class Examination:
    """One run of the doctor.

    Attributes:
        config: ``--config``.
        gateway_of: makes the gateway; nothing is sent before its first call.
        run_jobs: submit the tiny jobs.
        timeout: seconds that they may take.
        say: progress.
        checks: what was found so far.
    """

    config: Path | None
    gateway_of: Callable[[Settings], SlurmGateway]
    run_jobs: bool = True
    timeout: float = 60.0
    say: Callable[[str], None] = print
    checks: list[Check] = field(default_factory=list)
    settings: Settings | None = None
    api_version: str | None = None
    _nodes: Sequence[NodeInfo] = ()
    _shared_good: bool = False
    _accounting: bool = False

    def run(self) -> list[Check]:
        """Every check; never raises for what it finds."""
        source = self.config or Path(os.environ.get("SLURMREST_CONFIG") or DEFAULT_PATH)
        try:
            settings = load(self.config)
        except ConfigError as error:
            self._add(fail(files.CONFIG, str(error), "correct it; docs/configuration.md has every key"))
            return self.checks
        self.settings = settings
        self._add(_configuration(source))
        self._add(*files.secret_files(settings, source))
        owners = [_owner(line) for line in settings.identity.map]
        self._add(_identity(settings))
        self._add(files.state_directory(settings.state_dir))
        shared = files.shared_directory(settings.shared_dir, owners)
        self._shared_good = not any(check.verdict is Verdict.FAIL for check in shared)
        self._add(*shared)
        wanted = _partitions(settings)
        why = self._slurm(settings, wanted)
        ran = self._jobs(settings, wanted, owners, why)
        why_not = "" if ran else "no node was asked"
        self._add(*findings.of_site(ran, why_not, self._accounting))
        if settings.plan.delivery == "environment":
            self._add(findings.of_delivery(ran, why_not))
        return self.checks

    def _add(self, *checks: Check) -> None:
        self.checks += checks

    def _failed(self, name: str, subject: str) -> bool:
        return any(
            check.name == name and check.subject == subject and check.verdict is Verdict.FAIL
            for check in self.checks
        )

    def _skip(self, names: Sequence[str], why: str) -> str:
        self._add(*(skip(name, why) for name in names))
        return why

    def _slurm(self, settings: Settings, wanted: Mapping[str, str]) -> str:
        """Everything asked of Slurm; why no job can be submitted, empty when one can."""
        slurm = settings.slurm
        asker = slurm.service_user or next((line.user for line in settings.identity.map), None)
        tokens, at_hand = _tokens(settings, asker)
        usable = tokens is not None and at_hand.verdict is not Verdict.FAIL
        probe = self._endpoints(settings, tokens if tokens is not None and usable else NoToken(), asker)
        self._add(at_hand)
        if probe is None:
            return self._skip((*_OF_SLURM, rest.ACCOUNTING), "no slurmrestd answers")
        try:
            if not usable:
                return self._skip((*_OF_SLURM, rest.ACCOUNTING), "there is no token to ask with")
            return self._asked(settings, probe, asker, wanted)
        finally:
            probe.close()

    def _endpoints(self, settings: Settings, tokens: TokenSource, asker: str | None) -> rest.Probe | None:
        """Look at each; the first that answers is the one for all further questions."""
        alive: rest.Probe | None = None
        found: list[Check] = []
        for address in settings.slurm.endpoints:
            timeouts = settings.slurm.timeouts
            try:
                probe = rest.Probe(address, tokens, timeouts.connect_s, timeouts.read_s)
            except ConfigError as error:  # the address may hold a password, so it is not shown
                found.append(fail(rest.ENDPOINT, str(error), "correct slurm.endpoints"))
                continue
            answered, check = rest.endpoint(probe, asker)
            found.append(check)
            if answered and alive is None:
                alive = probe
            else:
                probe.close()
        for check in found:
            # With another one at work pods do not notice.
            spared = check.verdict is Verdict.FAIL and alive is not None
            self._add(warn(check.name, check.seen, check.advice, check.subject) if spared else check)
        return alive

    def _asked(
        self, settings: Settings, probe: rest.Probe, asker: str | None, wanted: Mapping[str, str]
    ) -> str:
        versions = rest.versions(lambda version: probe.serves(version, asker), settings.slurm.api_version)
        self._add(versions.check)
        rest_of = (*_OF_SLURM[1:], rest.ACCOUNTING)
        if versions.refused:
            self._add(rest.refused_at_the_door(probe.tokens, versions.refused))
            return self._skip(rest_of[1:], "the token is refused")
        if versions.chosen is None:
            return self._skip(rest_of, "no API version in common")
        self.api_version = versions.chosen
        accepted = rest.token_accepted(probe, asker, versions.chosen)
        self._add(accepted)
        if accepted.verdict is Verdict.FAIL:
            return self._skip(rest_of[1:], "the token is refused")
        if accepted.verdict is Verdict.SKIP:  # slurmctld is down, which takes ten seconds to hear each time
            self._skip((rest.USERS,), "the token's check could not be made either")
        else:
            users = dict.fromkeys(line.user for line in settings.identity.map)
            self._add(*(rest.may_act_for(probe, user, versions.chosen) for user in users))
        why = self._cluster(settings, asker, wanted)
        names = [gres.partition(":")[0] for gres in settings.gpu.resources.values()]
        accounting = rest.accounting(probe, asker, versions.chosen, names)
        self._accounting = accounting[0].verdict is Verdict.OK
        self._add(*accounting)
        return why

    def _cluster(self, settings: Settings, asker: str | None, wanted: Mapping[str, str]) -> str:
        gateway = self.gateway_of(settings)
        rest_of = (cluster.PARTITION, cluster.GRES)
        try:
            controller = cluster.controller(gateway.ping())
            self._add(controller)
            if controller.verdict is Verdict.FAIL:
                return self._skip(rest_of, "slurmctld does not answer")
            self._nodes = gateway.nodes(asker)
        except SlurmError as error:
            self._add(
                fail(cluster.SLURMCTLD, str(error), "start slurmctld; its log and slurmrestd's say more")
            )
            return self._skip(rest_of, "slurmctld does not answer")
        try:
            self._add(*cluster.partitions(wanted, gateway.partitions(asker), self._nodes))
        except SlurmError as error:
            # slurmrestd asks slurmdbd for TRES names first; slurmctld itself can do without.
            self._add(skip(cluster.PARTITION, f"could not be asked, as happens without slurmdbd: {error}"))
        usable = {name for name in wanted if not self._failed(cluster.PARTITION, name)}
        if not usable:
            self._skip((cluster.GRES,), "no configured partition can be used")
            return ""
        reachable = set() if cluster.SLURM_DEFAULT in usable else usable
        gres = cluster.wanted_gres(settings.gpu.resources, settings.gpu.types)
        self._add(*cluster.gres(gres, self._nodes, reachable))
        return ""

    def _jobs(
        self, settings: Settings, wanted: Mapping[str, str], owners: Sequence[Owner], why: str
    ) -> list[jobs.NodeJob]:
        """The tiny jobs and what they tell; an empty list when none was submitted."""
        if not self.run_jobs:
            why = "not asked for (--no-jobs)"
        elif not owners:
            why = why or "identity.map names nobody to submit as"
        elif not self._shared_good:
            why = why or "the shared directory cannot be used"
        if why or settings.shared_dir is None:
            self._skip(_OF_NODES, why)
            return []
        made = []
        for name in wanted:
            if self._failed(cluster.PARTITION, name):
                self._add(*(skip(check, "the partition cannot be used", name) for check in _OF_NODES))
                continue
            owner = _owner_for(settings, owners, name)
            made.append(jobs.NodeJob(None if name == cluster.SLURM_DEFAULT else name, owner))
        on_nodes = settings.shared_dir_on_nodes or str(settings.shared_dir)
        errand = jobs.Errand(
            gateway=self.gateway_of(settings),
            shared=settings.shared_dir,
            on_nodes=on_nodes,
            script=doctor_script(settings.podrunner.python),
            question={
                "registries": list(settings.images.insecure_registries),
                "cache": settings.images.cache,
                "runner": settings.podrunner.path,
            },
            timeout=self.timeout,
            say=self.say,
        )
        jobs.look(errand, made)
        gres_of = {node.name: node.gres for node in self._nodes}
        for job in made:
            self._add(*findings.of_job(job, self.timeout))
            gres = gres_of.get(getattr(job.found, "node", ""))
            runner = settings.podrunner
            self._add(*nodes.of_node(job, on_nodes, runner.python, runner.mode, gres, runner.path))
        return made


def _configuration(source: Path) -> Check:
    if not os.path.exists(source):  # noqa: PTH110
        return warn(
            files.CONFIG, f"{source} does not exist: these are the defaults", "write one, or give --config"
        )
    overrides = sorted(
        name for name in os.environ if name.upper().startswith("SLURMREST_") and name != "SLURMREST_CONFIG"
    )
    also = f", with {', '.join(overrides)} from the environment" if overrides else ""
    return ok(files.CONFIG, f"{source}{also}")


def _identity(settings: Settings) -> Check:
    lines = settings.identity.map
    if not lines:
        return fail(IDENTITY, "identity.map is empty: every pod is refused", "add a line for each namespace")
    refused = sorted(
        {
            line.user
            for line in lines
            if line.user in ("root", "slurm")
            or ((uid := _owner(line).uid) is not None and uid < settings.identity.min_uid)
        }
    )
    if refused:
        return fail(
            IDENTITY,
            f"identity.map names {', '.join(refused)}, as whom pods never run",
            f"name ordinary users, of uid {settings.identity.min_uid} or above (identity.min_uid)",
        )
    return ok(
        IDENTITY, f"{len(lines)} lines; pods run as {', '.join(dict.fromkeys(line.user for line in lines))}"
    )


def _partitions(settings: Settings) -> dict[str, str]:
    """Where pods can land: partition → the key that says so."""
    found: dict[str, str] = {}
    default = settings.defaults.partition
    if default is not None:
        found[default] = "defaults.partition"
    for at, line in enumerate(settings.identity.map):
        if line.partition is not None:
            found.setdefault(line.partition, f"identity.map[{at}].partition")
        elif default is None:
            found.setdefault(cluster.SLURM_DEFAULT, "defaults.partition")
    return found or {cluster.SLURM_DEFAULT: "defaults.partition"}


def _owner(line: MapLine) -> Owner:
    uid, gid = line.uid, line.gid
    if uid is None or gid is None:
        try:
            entry = pwd.getpwnam(line.user)
        except KeyError:
            pass
        else:
            uid, gid = (entry.pw_uid if uid is None else uid), (entry.pw_gid if gid is None else gid)
    return Owner(line.user, line.account, line.qos, line.partition, uid, gid)


def _owner_for(settings: Settings, owners: Sequence[Owner], partition: str) -> Owner:
    """Whose pods land in that partition; anybody's, where nobody's do."""
    default = settings.defaults.partition or cluster.SLURM_DEFAULT
    return next((owner for owner in owners if (owner.partition or default) == partition), owners[0])


def _tokens(settings: Settings, asker: str | None) -> tuple[TokenSource | None, Check]:
    token = settings.slurm.token
    try:
        source = token_source(
            TokenSettings(
                source=token.source,
                key_file=str(token.key_file) if token.key_file else None,
                token_file=str(token.file) if token.file else None,
                value=token.token,
                lifetime_s=token.lifetime_s,
            )
        )
    except (ConfigError, SlurmError) as error:
        return None, fail(rest.TOKEN, str(error), "correct slurm.token", "source")
    return source, rest.token_at_hand(source, asker, settings, time.time())
