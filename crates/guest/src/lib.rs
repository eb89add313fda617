//! The one static binary inside the images (init, spawn, files) and the protocol it speaks.

pub mod protocol;
