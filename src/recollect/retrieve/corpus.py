from ..corpus import *  # noqa
from ..corpus import FROM_ASSISTANT, FROM_USER, HAS_TIME, IS_QUESTION, NO_TIME, Corpus  # noqa
