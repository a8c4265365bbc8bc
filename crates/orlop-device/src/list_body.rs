//! The body of a list response, encoded in chunks. Objects are shared with the cache; only the next chunk is a copy.

use std::{
    iter::Peekable,
    pin::Pin,
    task::{Context, Poll},
    vec,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use http_body::Frame;
use tonic::{Code, Status};

use crate::wire;

/// HTTP/2's default frame size.
const CHUNK_BYTES: usize = 16 << 10;

/// One gRPC message, then trailers with status OK.
#[derive(Debug)]
pub(crate) struct ListBody {
    /// The beginning of the next chunk.
    partial: BytesMut,
    items: Peekable<vec::IntoIter<Bytes>>,
    ended: bool,
}

impl From<wire::List> for ListBody {
    fn from(list: wire::List) -> Self {
        let mut partial = BytesMut::with_capacity(CHUNK_BYTES);
        let items = list.begin(&mut partial);
        Self { partial, items: items.into_iter().peekable(), ended: false }
    }
}

impl ListBody {
    fn chunk(&mut self) -> Option<Bytes> {
        let mut chunk = std::mem::take(&mut self.partial);
        while let Some(item) =
            self.items.next_if(|item| chunk.is_empty() || chunk.len() + item.len() < CHUNK_BYTES)
        {
            if chunk.is_empty() {
                chunk.reserve(CHUNK_BYTES);
            }
            wire::List::put_item(&mut chunk, &item);
        }
        (!chunk.is_empty()).then(|| chunk.freeze())
    }
}

impl http_body::Body for ListBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(chunk) = self.chunk() {
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        if std::mem::replace(&mut self.ended, true) {
            return Poll::Ready(None);
        }
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert(Status::GRPC_STATUS, HeaderValue::from(Code::Ok as i32));
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use http_body_util::BodyExt;
    use orlop_device_client::api::ListMeta;
    use prost::Message;

    use super::*;

    #[test]
    fn chunks_form_one_message_and_are_bounded() {
        for sizes in [vec![], vec![0], vec![600; 256], vec![CHUNK_BYTES * 3, 1, CHUNK_BYTES]] {
            let items: Vec<_> = sizes.iter().map(|size| Bytes::from(vec![7; *size])).collect();
            let list_meta = Some(ListMeta { resource_version: Some("7".into()) });
            let list = wire::List { type_meta: None, list_meta, items };
            let mut body = ListBody::from(list.clone());
            let (mut sent, mut status) = (Vec::new(), None);
            while let Some(frame) = body.frame().now_or_never().unwrap() {
                match frame.unwrap().into_data() {
                    Ok(chunk) => {
                        let largest = sizes.iter().max().copied().unwrap_or_default();
                        assert!(chunk.len() < CHUNK_BYTES.max(largest) + 16);
                        sent.extend(chunk);
                    }
                    Err(trailers) => status = trailers.into_trailers().unwrap().get("grpc-status").cloned(),
                }
            }
            assert_eq!(status.unwrap(), "0");
            let (head, message) = sent.split_at(5);
            assert_eq!(head[0], 0);
            assert_eq!(u32::from_be_bytes(head[1..].try_into().unwrap()) as usize, message.len());
            assert_eq!(wire::ListResponse::decode(message).unwrap().list.unwrap(), list);
        }
    }
}
