//! What only a kernel can show.
