# Sourced by the labs' wrappers: sees to the tools a minimal Debian lacks, then starts the Python package
# with the system's Python and its standard library alone.

LAB=$(basename "$0")

# lab_tools TOOL:PACKAGE...: install the packages of the tools (or files) that are missing.
lab_tools() {
    local pair missing=() install
    for pair in python3:python3 "$@"; do
        case $pair in
        /*) [ -e "${pair%%:*}" ] || missing+=("${pair##*:}") ;;
        *) command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}") ;;
        esac
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ]; then
        echo "$LAB: root is needed to install ${missing[*]}. Try: sudo $0" >&2
        exit 1
    fi
    export DEBIAN_FRONTEND=noninteractive
    echo "$LAB: installing ${missing[*]}" >&2
    install=(apt-get -qq -y install --no-install-recommends "${missing[@]}")
    # The package lists are fetched only if what is there does not do.
    "${install[@]}" >/dev/null 2>&1 || { apt-get -qq update >&2 && "${install[@]}" >/dev/null; } || {
        echo "$LAB: apt could not install ${missing[*]}; see above" >&2
        exit 1
    }
}

# lab_python MODULE ARGUMENTS...: become a Python package of this checkout.
lab_python() {
    local python=/usr/bin/python3 here
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
        echo "$LAB: Python 3.11 or newer is needed, $python is $("$python" -V 2>&1)" >&2
        exit 1
    }
    here=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
    PYTHONPATH=$here exec "$python" -P -m "$@"
}
