"""Sidecar containers for Kubernetes 1.20: the source edits that make its API server know them.

`initContainers[].restartPolicy` came with Kubernetes 1.28 (KEP-753), as field 24 of Container in
core/v1's generated.proto. The edits let 1.20 store the field, and apply 1.28's rules: only `Always`, only on
init containers, and only there may an init container have probes and lifecycle hooks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..labkit.report import LabError


@dataclass(frozen=True)
class Edit:
    """In a file, after the first `within`: the next `old` becomes `new`."""

    path: str
    within: str
    old: str
    new: str


API = "staging/src/k8s.io/api/core/v1"
CORE = "pkg/apis/core"
_TTY = '\tTTY bool `json:"tty,omitempty" protobuf:"varint,18,opt,name=tty"`\n'
_FIELD = (
    '\t// "Always" makes an init container a sidecar.\n\t// +optional\n'
    '\tRestartPolicy string `json:"restartPolicy,omitempty" protobuf:"bytes,24,opt,name=restartPolicy"`\n'
)
# Key of field 24, length-delimited: (24 << 3 | 2) = 194, as a varint c2 01; written from the end.
_MARSHAL = """\
	if n := len(m.RestartPolicy); n > 0 {
		i -= n
		copy(dAtA[i:], m.RestartPolicy)
		i = encodeVarintGenerated(dAtA, i, uint64(n))
		i -= 2
		dAtA[i], dAtA[i+1] = 0xc2, 0x01
	}
"""
_SIZE = """\
	if size := len(m.RestartPolicy); size > 0 {
		n += 2 + size + sovGenerated(uint64(size))
	}
"""
_UNMARSHAL = """\
		case 24:
			if wireType != 2 {
				return fmt.Errorf("proto: wrong wireType = %d for field RestartPolicy", wireType)
			}
			size, width := proto.DecodeVarint(dAtA[iNdEx:])
			start := iNdEx + width
			if width == 0 || size > uint64(l-start) {
				return io.ErrUnexpectedEOF
			}
			iNdEx = start + int(size)
			m.RestartPolicy = string(dAtA[start:iNdEx])
"""
_ONLY_ALWAYS = """\
		sidecar := ctr.RestartPolicy == string(core.RestartPolicyAlways)
		if len(ctr.RestartPolicy) > 0 && !sidecar {
			allErrs = append(allErrs, field.NotSupported(idxPath.Child("restartPolicy"), ctr.RestartPolicy, []string{string(core.RestartPolicyAlways)}))
		}
"""  # noqa: E501
_ONLY_INIT = """\
		if !isInitContainers && len(ctr.RestartPolicy) > 0 {
			allErrs = append(allErrs, field.Forbidden(idxPath.Child("restartPolicy"), "may not be set for non-init containers"))
		}
"""  # noqa: E501


def _edits() -> list[Edit]:
    edits = []

    def insert(path: str, within: str, text: str, *, after: str = "", before: str = "") -> None:
        edits.append(Edit(path, within, after or before, after + text + before))

    # The conversions are by plain assignment, so both forms of both types need the field, at the same place.
    for kind in ("Container", "EphemeralContainerCommon"):
        insert(f"{API}/types.go", f"type {kind} struct {{\n", _FIELD, after=_TTY)
        line = "\t// +optional\n\tRestartPolicy string\n"
        insert(f"{CORE}/types.go", f"type {kind} struct {{\n", line, after="\tTTY bool\n")
        for way in (f"v1_{kind}_To_core_{kind}", f"core_{kind}_To_v1_{kind}"):
            insert(
                f"{CORE}/v1/zz_generated.conversion.go",
                f"func autoConvert_{way}(",
                "\tout.RestartPolicy = in.RestartPolicy\n",
                after="\tout.TTY = in.TTY\n",
            )
    # How etcd keeps it.
    wire, method = f"{API}/generated.pb.go", "func (m *Container) "
    insert(wire, method + "MarshalToSizedBuffer(", _MARSHAL, before="\tif m.StartupProbe != nil {\n")
    insert(wire, method + "Size() ", _SIZE, before="\treturn n\n}\n")
    insert(wire, method + "Unmarshal(", _UNMARSHAL, before="\t\tdefault:\n")
    # What it accepts.
    rules, init = f"{CORE}/validation/validation.go", "func validateInitContainers("
    insert(rules, init, _ONLY_ALWAYS, before="\t\tif ctr.Lifecycle != nil {\n")
    for name in ("Lifecycle", "LivenessProbe", "ReadinessProbe", "StartupProbe"):
        insert(rules, init, " && !sidecar", after=f"\t\tif ctr.{name} != nil")
    insert(rules, "func validateContainers(", _ONLY_INIT, after="\t\tidxPath := fldPath.Index(i)\n")
    return edits


EDITS = tuple(_edits())


def apply(source: Path) -> None:
    """Edit the source tree of Kubernetes 1.20. Raises LabError if it is not what the edits are made for."""
    for edit in EDITS:
        file = source / edit.path
        text = file.read_text()
        region = text.find(edit.within)
        at = text.find(edit.old, region)
        end = text.find("\n}\n", region) + 3
        if region < 0 or not region < at < end:
            raise LabError(f"{edit.path}: no {edit.old.strip()!r} in {edit.within.strip()!r}")
        file.write_text(text[:at] + edit.new + text[at + len(edit.old) :])
