# Within `ddprun exec`, Python imports this file instead of the sitecustomize that comes next on its path, which is
# imported here. Any Python may read it, also version 2; the module below needs 3.7.
import sys

if sys.version_info >= (3, 7):
    import _ddprun_in_place

    _ddprun_in_place.install()
    _ddprun_in_place.import_next("sitecustomize", __file__)
