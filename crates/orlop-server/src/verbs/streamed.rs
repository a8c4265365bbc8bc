//! A list that is streamed: stored bytes, copied once, a piece at a time. However long the list is and
//! however slow its reader, it holds two pages of the store and a few pieces.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::Response;
use orlop_api::status::Status;
use orlop_store::{KeyValue, ReadResult, Revision};
use serde_json::Value;
use tokio::sync::mpsc::{self, error::SendTimeoutError};

use super::{Request, answer, list::Listing};
use crate::{
    body::{Body, Broken},
    cluster::Found,
    registry::Kind,
};

/// Bytes of a list that is answered whole. What is longer is worth compressing.
const WHOLE_BYTES: usize = 128 << 10;
/// Bytes of a piece, and pieces that may wait for a slow client. The allocator keeps larger pieces of memory in
/// much larger ones.
const PIECE_BYTES: usize = 60 << 10;
const PIECES: usize = 8;
/// How long a client may take no piece at all.
const STALLED: Duration = Duration::from_secs(60);

/// A list that is being sent.
struct Streamed {
    request: Request,
    listing: Listing,
    listed: Listed,
}

/// What of a list has been written.
struct Listed {
    revision: Revision,
    /// All that there are, if they were counted.
    count: Option<u64>,
    objects: usize,
    /// The key listed last, and whether the list's own limit left out what follows it.
    last: Option<Bytes>,
    more: bool,
}

/// Answers with stored bytes, page after page.
pub(super) async fn stream(
    request: Request,
    listing: Listing,
    first: ReadResult,
) -> Result<Response<Body>, Status> {
    let (revision, count) = (listing.revision(&first), first.count);
    let kind = &request.kind;
    let opening = format!(
        "{{\"kind\":{},\"apiVersion\":{},\"items\":[",
        Value::from(kind.list_kind.as_str()),
        Value::from(kind.gvk.api_version())
    );
    let mut piece = BytesMut::from(opening.as_bytes());
    let mut listed = Listed { revision, count, objects: 0, last: None, more: first.more };
    let taken = listed.append(kind, &mut piece, &first.kvs, WHOLE_BYTES).await?;
    if taken == first.kvs.len() && listing.pages.is_done() {
        piece.put_slice(listed.closing(&listing).as_bytes());
        return Ok(answer::bytes(200, "application/json", piece.freeze()));
    }
    let (sender, receiver) = mpsc::channel(PIECES + 1);
    // One place is kept, so that a client that takes nothing can still be told that this is not all.
    let farewell = sender.clone().try_reserve_owned();
    let list = Streamed { request, listing, listed };
    tokio::spawn(async move {
        if let Err(status) = list.send(&sender, piece, first, taken).await {
            // The answer has begun: all that is left is to break it off, so that nobody takes it for whole.
            tracing::warn!(message = status.message, "list cut short");
            if let Ok(farewell) = farewell {
                farewell.send(Err(Broken));
            }
        }
    });
    Ok(answer::bytes(200, "application/json", Body::Stream(receiver)))
}

type Sender = mpsc::Sender<Result<Bytes, Broken>>;

impl Streamed {
    /// Sends a piece that has begun, the rest of a page, and all that follows. While a page is sent, the next is
    /// read.
    async fn send(
        self,
        sender: &Sender,
        piece: BytesMut,
        mut page: ReadResult,
        mut taken: usize,
    ) -> Result<(), Status> {
        let Self { request, mut listing, mut listed } = self;
        let mut piece = Some(piece);
        loop {
            let sent = async {
                while taken < page.kvs.len() {
                    if !hand_over(sender, piece.take().unwrap_or_default()).await? {
                        return Ok(false);
                    }
                    let rest = page.kvs.get(taken..).unwrap_or_default();
                    taken += listed
                        .append(&request.kind, piece.insert(BytesMut::new()), rest, PIECE_BYTES)
                        .await?;
                }
                Ok::<_, Status>(true)
            };
            let (sent, next) = tokio::join!(sent, listing.next(&request));
            if !sent? {
                return Ok(());
            }
            listed.more = page.more;
            match next? {
                Some(next) => (page, taken) = (next, 0),
                None => break,
            }
        }
        let mut piece = piece.unwrap_or_default();
        piece.put_slice(listed.closing(&listing).as_bytes());
        hand_over(sender, piece).await.map(drop)
    }
}

impl Listed {
    /// Appends objects with commas between, up to so many bytes; how many it took.
    async fn append(
        &mut self,
        kind: &Kind,
        piece: &mut BytesMut,
        kvs: &[KeyValue],
        bytes: usize,
    ) -> Result<usize, Status> {
        let taken = fitting(kind, kvs, bytes);
        let kvs = kvs.get(..taken).unwrap_or_default();
        piece.reserve(kvs.iter().map(|kv| kv.value.len() + 48).sum());
        let strangers: Vec<Found> =
            kvs.iter().filter(|kv| !kind.passes(&kv.value)).cloned().map(Found::from).collect();
        let mut converted = kind.read_all(&strangers).await?.into_iter();
        for kv in kvs {
            if self.objects > 0 {
                piece.put_u8(b',');
            }
            if !kind.pass(piece, &kv.value, kv.revision)
                && let Some(object) = converted.next()
            {
                piece.put_slice(object.to_string().as_bytes());
            }
            self.objects += 1;
        }
        self.last = kvs.last().map(|kv| kv.key.clone()).or(self.last.take());
        Ok(taken)
    }

    fn closing(&self, listing: &Listing) -> String {
        let rest = self.last.as_ref().filter(|_| self.more).map(|last| {
            let count = self.count.filter(|_| listing.counted);
            let remaining = count.map(|count| count.saturating_sub(self.objects as u64));
            (listing.token(self.revision, last), remaining)
        });
        format!("],\"metadata\":{}}}", listing.metadata(self.revision, rest))
    }
}

/// Hands a piece to whoever sends it; whether there is still a client.
async fn hand_over(sender: &Sender, piece: BytesMut) -> Result<bool, Status> {
    match sender.send_timeout(Ok(piece.freeze()), STALLED).await {
        Ok(()) => Ok(true),
        Err(SendTimeoutError::Closed(_)) => Ok(false),
        Err(SendTimeoutError::Timeout(_)) => Err(Status::timeout("the client takes nothing", 0)),
    }
}

/// How many objects fit into so many bytes: at least one. Where some have to be converted it is all of them,
/// so that a remote converter is asked once a page.
fn fitting(kind: &Kind, kvs: &[KeyValue], bytes: usize) -> usize {
    let mut total = 0;
    let over = kvs.iter().position(|kv| {
        total += kv.value.len();
        total > bytes
    });
    match over {
        Some(over) if kvs.iter().all(|kv| kind.passes(&kv.value)) => over.max(1),
        _ => kvs.len(),
    }
}
