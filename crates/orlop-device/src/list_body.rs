//! A list on its way out, a piece at a time. Its objects are shared with everyone else who reads them; only the piece
//! that the connection takes next is a copy.

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

/// What HTTP/2 sends at a time, unless the client allows more.
const PIECE_BYTES: usize = 16 << 10;

/// One gRPC message and the trailers of a call that went well.
#[derive(Debug)]
pub(crate) struct ListBody {
    /// What has been written of the next piece.
    begun: BytesMut,
    items: Peekable<vec::IntoIter<Bytes>>,
    ended: bool,
}

impl From<wire::List> for ListBody {
    fn from(list: wire::List) -> Self {
        let mut begun = BytesMut::with_capacity(PIECE_BYTES);
        let items = list.begin(&mut begun);
        Self { begun, items: items.into_iter().peekable(), ended: false }
    }
}

impl ListBody {
    fn piece(&mut self) -> Option<Bytes> {
        let mut piece = std::mem::take(&mut self.begun);
        while let Some(item) =
            self.items.next_if(|item| piece.is_empty() || piece.len() + item.len() < PIECE_BYTES)
        {
            if piece.is_empty() {
                piece.reserve(PIECE_BYTES);
            }
            wire::List::put_item(&mut piece, &item);
        }
        (!piece.is_empty()).then(|| piece.freeze())
    }
}

impl http_body::Body for ListBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(piece) = self.piece() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
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
    fn the_pieces_are_one_message_and_each_is_small() {
        for sizes in [vec![], vec![0], vec![600; 256], vec![PIECE_BYTES * 3, 1, PIECE_BYTES]] {
            let items: Vec<_> = sizes.iter().map(|size| Bytes::from(vec![7; *size])).collect();
            let list_meta = Some(ListMeta { resource_version: Some("7".into()) });
            let list = wire::List { type_meta: None, list_meta, items };
            let mut body = ListBody::from(list.clone());
            let (mut sent, mut status) = (Vec::new(), None);
            while let Some(frame) = body.frame().now_or_never().unwrap() {
                match frame.unwrap().into_data() {
                    Ok(piece) => {
                        let largest = sizes.iter().max().copied().unwrap_or_default();
                        assert!(piece.len() < PIECE_BYTES.max(largest) + 16);
                        sent.extend(piece);
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
