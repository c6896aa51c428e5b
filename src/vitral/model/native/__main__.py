"""`python -m vitral.model.native` builds the library where Vitral is."""

import sys

from vitral.model.native.build import main

sys.exit(main())
