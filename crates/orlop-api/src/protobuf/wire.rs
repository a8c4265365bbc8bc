//! The wire format: tags, varints, lengths.

use super::DecodeError;

/// Wire type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WireType {
    Varint,
    Fixed64,
    Length,
    StartGroup,
    EndGroup,
    Fixed32,
}

impl WireType {
    fn of(number: u64) -> Result<Self, DecodeError> {
        Ok(match number {
            0 => Self::Varint,
            1 => Self::Fixed64,
            2 => Self::Length,
            3 => Self::StartGroup,
            4 => Self::EndGroup,
            5 => Self::Fixed32,
            other => return Err(DecodeError::IllegalWireType(other)),
        })
    }
}

// === Reading ===

/// Remaining bytes of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        let (first, rest) = self.0.split_first().ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            // The tenth byte holds the last bit of 64; excess bits are dropped, as in gogo.
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::Overflow)
    }

    /// Reads the next field's number and wire type.
    pub(super) fn tag(&mut self) -> Result<(u32, WireType), DecodeError> {
        let tag = self.varint()?;
        let number =
            u32::try_from(tag >> 3).ok().filter(|number| *number > 0).ok_or(DecodeError::IllegalTag)?;
        Ok((number, WireType::of(tag & 7)?))
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.varint()?;
        self.take(usize::try_from(length).map_err(|_| DecodeError::Truncated)?)
    }

    pub(super) fn fixed64(&mut self) -> Result<u64, DecodeError> {
        self.take(8)?.try_into().map(u64::from_le_bytes).map_err(|_| DecodeError::Truncated)
    }

    /// Skips a value. Nested groups are counted instead of recursed into.
    pub(super) fn skip(&mut self, wire_type: WireType) -> Result<(), DecodeError> {
        let (mut wire_type, mut open) = (wire_type, 0usize);
        loop {
            match wire_type {
                WireType::Varint => drop(self.varint()?),
                WireType::Fixed64 => drop(self.take(8)?),
                WireType::Fixed32 => drop(self.take(4)?),
                WireType::Length => drop(self.bytes()?),
                WireType::StartGroup => open += 1,
                WireType::EndGroup => open = open.checked_sub(1).ok_or(DecodeError::IllegalTag)?,
            }
            if open == 0 {
                return Ok(());
            }
            (_, wire_type) = self.tag()?;
        }
    }
}

// === Writing ===

pub(super) fn put_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push((value as u8) | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

pub(super) fn put_tag(to: &mut Vec<u8>, number: u32, wire_type: WireType) {
    let low = match wire_type {
        WireType::Varint => 0,
        WireType::Fixed64 => 1,
        WireType::Length => 2,
        WireType::StartGroup => 3,
        WireType::EndGroup => 4,
        WireType::Fixed32 => 5,
    };
    put_varint(to, u64::from(number) << 3 | low);
}

pub(super) fn put_bytes(to: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_tag(to, number, WireType::Length);
    put_varint(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

/// Writes a varint. A negative number takes ten bytes.
pub(super) fn put_integer(to: &mut Vec<u8>, number: u32, value: i64) {
    put_tag(to, number, WireType::Varint);
    put_varint(to, value as u64);
}

pub(super) fn put_double(to: &mut Vec<u8>, number: u32, value: f64) {
    put_tag(to, number, WireType::Fixed64);
    to.extend_from_slice(&value.to_bits().to_le_bytes());
}

/// Writes a nested message. Most are shorter than 128 bytes, so one byte is reserved for the length and
/// longer ones are moved.
pub(super) fn put_message<T>(to: &mut Vec<u8>, number: u32, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    put_tag(to, number, WireType::Length);
    to.push(0);
    let start = to.len();
    let written = write(to);
    let length = to.len() - start;
    if let Ok(short @ 0..0x80) = u8::try_from(length) {
        to[start - 1] = short;
        return written;
    }
    let mut prefix = Vec::with_capacity(5);
    put_varint(&mut prefix, length as u64);
    to.splice(start - 1..start, prefix);
    written
}
