"""Outputs of lfs df and lctl dl -t of file systems of a test's own, as a client prints them."""

from __future__ import annotations

HEADER = "UUID                   1K-blocks        Used   Available Use% Mounted on\n"


def df(targets, mount="/scratch", label="filesystem_summary:", *, flags="", blank=" "):
    """`lfs df` of {name: (total, used)}; names like fs-OST000a."""
    lines = [HEADER]
    for name, (total, used) in targets.items():
        free = total - used
        share = -(-100 * used // max(1, used + free))
        kind, index = name[-7:-4], int(name[-4:], 16)
        lines.append(f"{name + '_UUID':<20} {total:>11} {used:>11} {free:>11} {share:>3}%{blank}{mount}[{kind}:{index}]{flags} \n")
    total, used = (sum(figures[i] for name, figures in targets.items() if "-OST" in name) for i in (0, 1))
    lines += ["\n", f"{label:<20} {total:>11} {used:>11} {total - used:>11} {-(-100 * used // max(1, total)):>3}% {mount}\n", "\n"]
    return "".join(lines)


def df_inodes(targets, mount="/scratch"):
    """`lfs df -i` of {name: (total, used)}."""
    return df(targets, mount).replace("1K-blocks        Used   Available Use%", "   Inodes       IUsed       IFree IUse%")


def dl(served, suffix="ffff885f81a64000"):
    """`lctl dl -t` of {name: NID or None}."""
    uuid = "8dbdc7f6-8f86-86ea-052f-357e2db2a7d9"
    systems = dict.fromkeys(name[:-8] for name in served)
    lines = ["  0 UP mgc MGC10.100.101.3@o2ib2 3547302e-74a0-7260-9a61-ddecc4161901 5\n"]
    for system in systems:
        lines += [
            f"{len(lines):3} UP lov {system}-clilov-{suffix} {uuid} 4\n",
            f"{len(lines) + 1:3} UP lmv {system}-clilmv-{suffix} {uuid} 4\n",
        ]
    for name, nid in served.items():
        sort = "osc" if "-OST" in name else "mdc"
        lines.append(f"{len(lines):3} UP {sort} {name}-{sort}-{suffix} {uuid} 5{f' {nid}' if nid else ''}\n")
    return "".join(lines)


def servers(targets, first=5, net="10.100.101"):
    """One server for each target, as numbered as they are."""
    return {name: f"{net}.{first + place}@o2ib2" for place, name in enumerate(targets)}
