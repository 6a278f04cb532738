"""What compute nodes measure: the datasets of the group `nodes`, with units.

The sensors of tokiod.agent declare these metrics; a test compares both lists. The agent can't import this one: nodes have Python alone.
"""

from __future__ import annotations

_COUNTERS = {
    "s": "cpu_user cpu_nice cpu_system cpu_idle cpu_iowait cpu_irq cpu_softirq cpu_steal cpu_guest cpu_guest_nice disk_busy",
    "1": (
        "interrupts context_switches forks page_faults major_page_faults oom_kills numa_misses huge_page_faults disk_reads disk_writes "
        "net_packets_received net_receive_errors net_receive_drops net_packets_sent net_send_errors net_send_drops tcp_retransmitted "
        "fabric_packets_received fabric_packets_sent fabric_send_waits fabric_receive_errors fabric_send_drops fabric_symbol_errors "
        "fabric_link_downs lustre_reads lustre_writes lustre_open lustre_close lustre_getattr lustre_setattr lustre_fsync lustre_unlink "
        "lustre_mkdir lustre_rmdir lustre_mknod lustre_rename lustre_readdir lustre_statfs lustre_seek perf_cycles perf_instructions "
        "perf_cache_references perf_cache_misses perf_branches perf_branch_misses perf_ref_cycles perf_page_faults perf_context_switches "
        "perf_cpu_migrations"
    ),
    "B": (
        "paged_in paged_out swapped_in swapped_out disk_read disk_written net_received net_sent fabric_received fabric_sent lustre_read "
        "lustre_written"
    ),
    "J": "energy_package energy_dram energy_core energy_uncore energy_platform gpu_energy",
}
"""A cell holds the increase within its row."""
_GAUGES = {
    "1": "processes_running processes_blocked load_1min load_5min load_15min threads disk_queue gpu_mig_devices",
    "s": "uptime",
    "B": (
        "mem_total mem_free mem_available mem_buffers mem_cached swap_cached mem_active mem_inactive mem_unevictable mem_locked mem_dirty "
        "mem_writeback mem_anon mem_anon_huge mem_mapped mem_shared mem_slab mem_slab_reclaimable mem_kernel_stack mem_page_tables "
        "mem_commit_limit mem_committed swap_total swap_free mem_corrupted huge_pages_total huge_pages_free gpu_mem_used gpu_mem_total"
    ),
    "degC": "temperature gpu_temperature",
    "1/min": "fan",
    "W": "power gpu_power node_power",
    "%": "gpu_busy",
    "MHz": "gpu_clock",
}
"""A cell holds the mean of its row, or the largest value."""


def _by_name(units: dict[str, str]) -> dict[str, str]:
    return {name: unit for unit, names in units.items() for name in names.split()}


COUNTERS, GAUGES = _by_name(_COUNTERS), _by_name(_GAUGES)
UNITS = COUNTERS | GAUGES
