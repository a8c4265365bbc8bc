//! Protobuf in buffers of the size that messages have: small for calls about one device, and for a list as
//! large as it is, once, instead of doubling until it fits.

use std::marker::PhantomData;

use prost::Message;
use tonic::{
    Status,
    codec::{BufferSettings, Codec, EncodeBuf, Encoder},
};
use tonic_prost::ProstDecoder;

/// Room for a call about one device.
const SMALL: usize = 2 << 10;
/// How much of a stream is gathered before it is handed to the connection.
const YIELD: usize = 32 << 10;

fn buffers() -> BufferSettings {
    BufferSettings::new(SMALL, YIELD)
}

/// Encodes `T`, decodes `U`.
#[derive(Debug)]
pub(crate) struct Fitting<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Fitting<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for Fitting<T, U>
where
    T: Message + 'static,
    U: Message + Default + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = FittingEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        FittingEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::new(buffers())
    }
}

/// Makes room for a message before it encodes it.
#[derive(Debug)]
pub(crate) struct FittingEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for FittingEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(item.encoded_len());
        item.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}
