"""Names of commands as job ids have them: the most common ones, and made ones that are nowhere else, under uids of seven digits."""

_COMMON = """
ls cat cp mv rm mkdir rmdir touch ln chmod chown chgrp find grep egrep fgrep sed awk gawk cut sort uniq head tail wc tr tee xargs tar
gzip gunzip zcat bzip2 xz unxz zstd unzip zip 7z 7za 7zr dd df du stat file diff cmp patch less more vi vim nano emacs ed ssh sshd scp
sftp rsync wget curl ftp bash sh dash zsh csh tcsh ksh fish su sudo login cron crond systemd screen tmux top htop ps kill killall nice
time sleep watch date env echo printf test [ true false yes seq expr bc dc make cmake ninja gcc g++ cc c++ cpp ld as ar ranlib nm
objdump strip gdb strace ltrace perf valgrind python python2 python3 python3.11 2to3 pip pip3 conda mamba ipython jupyter perl ruby
node npm java javac R Rscript julia matlab octave mpirun mpiexec srun sbatch squeue sacct orted hydra_pmi_proxy slurmstepd pbs_mom git
svn hg lfs lctl mount umount fsck h5dump h5ls ncdump ncks cdo gnuplot convert ffmpeg gromacs gmx namd2 lmp vasp_std cp2k.psmp pw.x
nwchem siesta xhpl ior mdtest fio a.out main run solver test.exe wrf.exe blastn blastp bwa samtools bcftools bowtie2 STAR hisat2 fastqc
gatk nextflow snakemake singularity apptainer docker podman containerd kworker/3:1 ldconfig updatedb locate mandb tmpwatch robinhood
globus-gridftp- md5sum sha256sum openssl gpg base64 od xxd hexdump strings rev paste join comm split csplit shuf column fold fmt nl pr
cal who w id groups finger last hostname uname uptime dmesg journalctl lsof fuser ip ifconfig ping nc
"""
_MADE = """
quuxsolver 9zorkmid 42frobnicate 7zplover 3dwumpus 8.plugh 1e5xyzzy 0xdeadplugh 2.4.blorple 6-gnusto_rezrov frotz@home ozmoo:step
izyuk.exe nitfol.py grue,torch [snavig] zilbo+1 _pulver ünterzork espnis(1)
"""
COMMON, MADE = _COMMON.split(), _MADE.split()
UIDS = [7_390_141 + 1_013 * number for number in range(40)]


def commanded_ids(commands):
    """Return COMMAND.UID of each command, as bytes; Linux cuts a command after 15 bytes."""
    return [b"%s.%d" % (one.encode()[:15], UIDS[place % len(UIDS)]) for place, one in enumerate(commands)]


def secrets():
    """Return what may be nowhere: COMMAND.UID of all, the made commands and the uids."""
    made = [one.encode()[:15] for one in MADE]
    return [*commanded_ids([*COMMON, *MADE]), *made, *(b"%d" % uid for uid in UIDS)]
