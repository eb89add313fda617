//! The ports to sandboxes (execution, workspace, inventory), the container adapter, the fake, and their contract suite.
