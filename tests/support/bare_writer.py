"""What a writer needs beside its sink and its ledger, for an archive that is only written."""


class NoAdmission:
    """Admits every window."""

    def check(self, collected):
        pass


class NoUpkeep:
    """Looks after no file."""

    is_busy = False

    def run(self):
        return False

    def note_stored(self, metas):
        pass

    def note_forgotten(self, path):
        pass

    def note_sealed(self, path):
        pass
