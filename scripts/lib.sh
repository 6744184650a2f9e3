# Shared by scripts/demo and scripts/test: sourced, not run.
# Sets up what they need on a fresh Debian 12: Debian packages and a virtual environment.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '\n== %s\n' "$*" >&2; }

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 125
}

need_root() {
    [ "$(id -u)" = 0 ] || die "needs root: it installs Debian packages and starts a Slurm in namespaces of its own"
}

# ensure_packages PACKAGE...: install what is missing, asking the mirror only then.
ensure_packages() {
    local package missing=()
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    say "installing Debian packages: ${missing[*]}"
    [ "$(id -u)" = 0 ] || die "needs root to install: ${missing[*]}"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1 || {
        apt-get update -qq &&
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    } || die "apt-get could not install: ${missing[*]}"
}

# find_python: the first interpreter that is new enough and can make a virtual environment.
find_python() {
    local candidate
    for candidate in python3 python3.13 python3.12 python3.11 /usr/bin/python3; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

# ensure_venv: .venv in the checkout with this package, editable, and the development tools;
# made anew when pyproject.toml changes.
ensure_venv() {
    local python stamp
    PATH=${PATH//"$ROOT/.venv/bin:"/}  # an activated one must not be what makes its successor
    python=$(find_python) || {
        ensure_packages python3 python3-venv
        python=$(find_python) || die "needs Python 3.11 or newer with the venv module"
    }
    stamp=$(sha256sum "$ROOT/pyproject.toml" | cut -d' ' -f1)
    if [ "$(cat "$ROOT/.venv/stamp" 2>/dev/null)" != "$stamp" ]; then
        say "making the virtual environment .venv ($("$python" --version))"
        rm -rf "$ROOT/.venv"
        "$python" -m venv "$ROOT/.venv"
        "$ROOT/.venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$ROOT[dev]" ||
            die "pip could not install the project; is the package index reachable?"
        printf '%s\n' "$stamp" >"$ROOT/.venv/stamp"
    fi
    PATH="$ROOT/.venv/bin:$PATH"
    export PATH
}
