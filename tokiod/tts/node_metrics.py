"""What compute nodes measure, as the sensors of tokiod.agent declare it: `make docs` writes this file.

Units are looked up here, because importing all sensors takes tens of milliseconds, and the reader alone has no agent.
"""

COUNTERS = {
    "cpu_user": "s", "cpu_nice": "s", "cpu_system": "s", "cpu_idle": "s", "cpu_iowait": "s", "cpu_irq": "s", "cpu_softirq": "s",
    "cpu_steal": "s", "cpu_guest": "s", "cpu_guest_nice": "s", "disk_busy": "s", "interrupts": "1", "context_switches": "1", "forks": "1",
    "page_faults": "1", "major_page_faults": "1", "oom_kills": "1", "numa_misses": "1", "huge_page_faults": "1", "disk_reads": "1",
    "disk_writes": "1", "net_packets_received": "1", "net_receive_errors": "1", "net_receive_drops": "1", "net_packets_sent": "1",
    "net_send_errors": "1", "net_send_drops": "1", "tcp_retransmitted": "1", "fabric_packets_received": "1", "fabric_packets_sent": "1",
    "fabric_send_waits": "1", "fabric_receive_errors": "1", "fabric_send_drops": "1", "fabric_symbol_errors": "1", "fabric_link_downs": "1",
    "lustre_reads": "1", "lustre_writes": "1", "lustre_open": "1", "lustre_close": "1", "lustre_getattr": "1", "lustre_setattr": "1",
    "lustre_fsync": "1", "lustre_unlink": "1", "lustre_mkdir": "1", "lustre_rmdir": "1", "lustre_mknod": "1", "lustre_rename": "1",
    "lustre_readdir": "1", "lustre_statfs": "1", "lustre_seek": "1", "perf_cycles": "1", "perf_instructions": "1",
    "perf_cache_references": "1", "perf_cache_misses": "1", "perf_branches": "1", "perf_branch_misses": "1", "perf_ref_cycles": "1",
    "perf_page_faults": "1", "perf_context_switches": "1", "perf_cpu_migrations": "1", "paged_in": "B", "paged_out": "B", "swapped_in": "B",
    "swapped_out": "B", "disk_read": "B", "disk_written": "B", "net_received": "B", "net_sent": "B", "fabric_received": "B",
    "fabric_sent": "B", "lustre_read": "B", "lustre_written": "B", "energy_package": "J", "energy_dram": "J", "energy_core": "J",
    "energy_uncore": "J", "energy_platform": "J", "gpu_energy": "J",
}  # fmt: skip
"""Datasets of the group `nodes` with their units. A cell holds the increase within its row."""
GAUGES = {
    "processes_running": "1", "processes_blocked": "1", "load_1min": "1", "load_5min": "1", "load_15min": "1", "threads": "1",
    "disk_queue": "1", "gpu_mig_devices": "1", "uptime": "s", "mem_total": "B", "mem_free": "B", "mem_available": "B", "mem_buffers": "B",
    "mem_cached": "B", "swap_cached": "B", "mem_active": "B", "mem_inactive": "B", "mem_unevictable": "B", "mem_locked": "B",
    "mem_dirty": "B", "mem_writeback": "B", "mem_anon": "B", "mem_anon_huge": "B", "mem_mapped": "B", "mem_shared": "B", "mem_slab": "B",
    "mem_slab_reclaimable": "B", "mem_kernel_stack": "B", "mem_page_tables": "B", "mem_commit_limit": "B", "mem_committed": "B",
    "swap_total": "B", "swap_free": "B", "mem_corrupted": "B", "huge_pages_total": "B", "huge_pages_free": "B", "gpu_mem_used": "B",
    "gpu_mem_total": "B", "temperature": "degC", "gpu_temperature": "degC", "fan": "1/min", "power": "W", "gpu_power": "W",
    "node_power": "W", "gpu_busy": "%", "gpu_clock": "MHz",
}  # fmt: skip
"""Datasets whose cells hold the mean of their row, or the largest value."""
OF_JOBS = {
    "job_cpu": ("s", "counter"), "job_cpu_user": ("s", "counter"), "job_cpu_system": ("s", "counter"),
    "job_cpu_throttled": ("s", "counter"), "job_mem": ("B", "gauge"), "job_mem_peak": ("B", "gauge"), "job_mem_anon": ("B", "gauge"),
    "job_mem_cache": ("B", "gauge"), "job_page_faults": ("1", "counter"), "job_major_page_faults": ("1", "counter"),
    "job_oom_kills": ("1", "counter"), "job_disk_read": ("B", "counter"), "job_disk_written": ("B", "counter"),
    "job_disk_reads": ("1", "counter"), "job_disk_writes": ("1", "counter"), "job_processes": ("1", "gauge"),
    "job_cpu_stalled": ("s", "counter"), "job_memory_stalled": ("s", "counter"), "job_io_stalled": ("s", "counter"),
    "job_perf_cycles": ("1", "counter"), "job_perf_instructions": ("1", "counter"), "job_perf_cache_references": ("1", "counter"),
    "job_perf_cache_misses": ("1", "counter"), "job_perf_branches": ("1", "counter"), "job_perf_branch_misses": ("1", "counter"),
    "job_perf_ref_cycles": ("1", "counter"), "job_perf_task_clock": ("s", "counter"), "job_perf_page_faults": ("1", "counter"),
    "job_perf_context_switches": ("1", "counter"), "job_perf_cpu_migrations": ("1", "counter"),
}  # fmt: skip
"""Metrics of jobs, by their cgroups: unit and kind. They are columns of the job table (tokiod.job_columns)."""
