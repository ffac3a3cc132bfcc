"""Everything that can go wrong for a reason the user can mend."""


class GeoSprintError(Exception):
    """What was expected, what came, and what to do, in one sentence."""


class NoiseError(GeoSprintError):
    """A noise schedule that cannot be built, or two that do not agree."""


class GeometryError(GeoSprintError):
    """Points, windows or thresholds that the geometry cannot use."""


class ModelError(GeoSprintError):
    """A model that cannot be found, does not fit the protocol, or returned nonsense."""


class ModelFailed(ModelError):
    """A model whose own code failed while it was asked; what was finished by then may have been kept."""


class ScheduleError(GeoSprintError):
    """Steps that no solver could walk."""


class FileError(GeoSprintError):
    """A file that is missing, damaged, of another kind or of another version."""


class TeamError(GeoSprintError):
    """Processes that should work together and do not find, or lost, one another."""
