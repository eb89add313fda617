//! Little-endian fields and length-prefixed bytes: the few primitives every payload is made of.

use super::frame::ProtocolError;

/// Appends fields to a payload.
pub(super) trait Put {
    fn put_u8(&mut self, value: u8);
    fn put_raw(&mut self, value: &[u8]);

    fn put_bool(&mut self, value: bool) {
        self.put_u8(u8::from(value));
    }
    fn put_u16(&mut self, value: u16) {
        self.put_raw(&value.to_le_bytes());
    }
    fn put_u32(&mut self, value: u32) {
        self.put_raw(&value.to_le_bytes());
    }
    fn put_i32(&mut self, value: i32) {
        self.put_raw(&value.to_le_bytes());
    }
    fn put_u64(&mut self, value: u64) {
        self.put_raw(&value.to_le_bytes());
    }
    fn put_i64(&mut self, value: i64) {
        self.put_raw(&value.to_le_bytes());
    }
    /// Length (u32) and bytes. Every sender keeps its fields below the frame limit, far from `u32::MAX`.
    fn put_bytes(&mut self, value: &[u8]) {
        self.put_u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.put_raw(value);
    }
    fn put_opt_u64(&mut self, value: Option<u64>) {
        self.put_bool(value.is_some());
        if let Some(value) = value {
            self.put_u64(value);
        }
    }
    fn put_opt_bytes(&mut self, value: Option<&[u8]>) {
        self.put_bool(value.is_some());
        if let Some(value) = value {
            self.put_bytes(value);
        }
    }
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }
    fn put_raw(&mut self, value: &[u8]) {
        self.extend_from_slice(value);
    }
}

/// Takes fields from a payload; every error names the frame kind and the field.
pub(super) struct Take<'a> {
    kind: u8,
    rest: &'a [u8],
}

impl<'a> Take<'a> {
    pub(super) fn new(kind: u8, payload: &'a [u8]) -> Self {
        Self { kind, rest: payload }
    }

    pub(super) fn malformed(&self, field: &'static str) -> ProtocolError {
        ProtocolError::Malformed { kind: self.kind, field }
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], ProtocolError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.malformed(field))?;
        self.rest = rest;
        Ok(*head)
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, ProtocolError> {
        Ok(u8::from_le_bytes(self.array(field)?))
    }
    pub(super) fn u16(&mut self, field: &'static str) -> Result<u16, ProtocolError> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }
    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, ProtocolError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }
    pub(super) fn i32(&mut self, field: &'static str) -> Result<i32, ProtocolError> {
        Ok(i32::from_le_bytes(self.array(field)?))
    }
    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, ProtocolError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }
    pub(super) fn i64(&mut self, field: &'static str) -> Result<i64, ProtocolError> {
        Ok(i64::from_le_bytes(self.array(field)?))
    }
    pub(super) fn bool(&mut self, field: &'static str) -> Result<bool, ProtocolError> {
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.malformed(field)),
        }
    }
    pub(super) fn map_u8<T>(
        &mut self,
        field: &'static str,
        map: fn(u8) -> Option<T>,
    ) -> Result<T, ProtocolError> {
        let value = self.u8(field)?;
        map(value).ok_or_else(|| self.malformed(field))
    }
    pub(super) fn digest(&mut self, field: &'static str) -> Result<[u8; 32], ProtocolError> {
        self.array(field)
    }
    pub(super) fn bytes(&mut self, field: &'static str, max: usize) -> Result<Vec<u8>, ProtocolError> {
        let len = usize::try_from(self.u32(field)?).map_err(|_| self.malformed(field))?;
        if len > max {
            return Err(self.malformed(field));
        }
        let (head, rest) = self.rest.split_at_checked(len).ok_or_else(|| self.malformed(field))?;
        self.rest = rest;
        Ok(head.to_vec())
    }
    pub(super) fn string(&mut self, field: &'static str, max: usize) -> Result<String, ProtocolError> {
        String::from_utf8(self.bytes(field, max)?).map_err(|_| self.malformed(field))
    }
    pub(super) fn opt_u64(&mut self, field: &'static str) -> Result<Option<u64>, ProtocolError> {
        Ok(if self.bool(field)? { Some(self.u64(field)?) } else { None })
    }
    pub(super) fn opt_bytes(
        &mut self,
        field: &'static str,
        max: usize,
    ) -> Result<Option<Vec<u8>>, ProtocolError> {
        Ok(if self.bool(field)? { Some(self.bytes(field, max)?) } else { None })
    }
    /// All that is left, as it is.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.rest).to_vec()
    }
    /// Nothing may be left over: a longer payload is another protocol.
    pub(super) fn finish(self) -> Result<(), ProtocolError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.malformed("trailing bytes")) }
    }
}
