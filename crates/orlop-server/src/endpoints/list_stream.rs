//! A list that is streamed, a page at a time, in whatever form it is asked for. However long the list is and however
//! slow its reader, it holds two pages of the store and what was made of them. A collection is deleted as it is listed.
//!
//! Protobuf says how long a list is before it begins. What is held tells that of a list that is not long; the rest of
//! a long one is written twice, first only to be measured.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::{Buf, Bytes, BytesMut};
use http::Response;
use orlop_api::{object_meta, status::Status};
use orlop_store::{EncodedPage, KeyValue, Revision, RowEncoder};
use serde_json::Value;
use tokio::sync::mpsc::{self, error::SendTimeoutError};

use super::{
    Request, delete::DeleteOptions, delete_collection::delete_all, list::Listing, list_encoder::ListEncoder,
};
use crate::{
    http::{
        body::{Aborted, Body},
        response,
    },
    registry::Found,
};

/// Bytes of a list that is answered whole. What is longer is worth compressing.
const WHOLE_BYTES: usize = 128 << 10;
/// Bytes of a list that are held while it is measured.
const MEASURED_BYTES: usize = 4 << 20;
/// Bytes of a piece, and pieces that may wait for a slow client.
const PIECE_BYTES: usize = 60 << 10;
const PIECES: usize = 8;
/// How long a client may take no piece at all.
const STALLED: Duration = Duration::from_secs(60);
/// Objects that are decoded before others get their turn.
const TURN: usize = 32;

/// A list, so far. A copy goes on from here by itself.
#[derive(Clone)]
struct Streamed {
    request: Arc<Request>,
    rendering: Arc<ListEncoder>,
    listing: Listing,
    revision: Revision,
    /// All that there are, if they were counted.
    count: Option<u64>,
    listed: usize,
    /// The key listed last, and whether the list's own limit left out what follows it.
    last: Option<Bytes>,
    more: bool,
    done: bool,
    /// How what is listed is deleted, a page at a time, if it is.
    deletion: Option<Arc<DeleteOptions>>,
}

/// Answers page after page; what is listed can be deleted on the way.
pub(super) async fn stream(
    request: Request,
    listing: Listing,
    deletion: Option<DeleteOptions>,
) -> Result<Response<Body>, Status> {
    let rendering = Arc::new(ListEncoder::of(&request)?);
    let media_type = request.negotiated.encoding.media_type();
    let mut list = Streamed {
        request: Arc::new(request),
        rendering: rendering.clone(),
        listing,
        revision: 0,
        count: None,
        listed: 0,
        last: None,
        more: false,
        done: false,
        deletion: deletion.map(Arc::new),
    };
    // A deletion that fails is told as long as nothing has been answered.
    let is_held = rendering.tells_its_length() || list.deletion.is_some();
    let held_max = if is_held { MEASURED_BYTES } else { WHOLE_BYTES };
    let (mut held, mut held_bytes) = (VecDeque::new(), 0);
    while held_bytes <= held_max
        && let Some(items) = list.next().await?
    {
        held_bytes += items.len();
        held.push_back(items);
    }
    let mut bytes = held_bytes;
    let mut metadata = list.metadata();
    if rendering.tells_its_length() && !list.done {
        let mut ahead = Streamed { deletion: None, ..list.clone() };
        while let Some(items) = ahead.next().await? {
            bytes += items.len();
        }
        metadata = ahead.metadata();
    }
    let opening = rendering.opening(bytes, &metadata);
    if list.done && held_bytes <= WHOLE_BYTES {
        let closing = rendering.closing(list.listed > 0, &metadata);
        let pieces = std::iter::once(opening.into()).chain(held).chain([closing.into()]);
        let whole: Vec<Bytes> = pieces.collect();
        return Ok(response::bytes(200, media_type, whole.concat()));
    }
    held.push_front(opening.into());
    let measured = rendering.tells_its_length().then_some(bytes);
    let (sender, receiver) = mpsc::channel(PIECES + 1);
    // One place is kept, so that a client that takes nothing can still be told that this is not all.
    let farewell = sender.clone().try_reserve_owned();
    tokio::spawn(async move {
        if let Err(status) = list.send(&sender, held, held_bytes, measured).await {
            // The answer has begun: all that is left is to break it off, so that nobody takes it for whole.
            tracing::warn!(message = status.message, "list cut short");
            if let Ok(farewell) = farewell {
                farewell.send(Err(Aborted));
            }
        }
    });
    Ok(response::bytes(200, media_type, Body::Stream(receiver)))
}

type Sender = mpsc::Sender<Result<Bytes, Aborted>>;

impl Streamed {
    /// Sends what is held, of which so many bytes are items, and all that follows.
    async fn send(
        &mut self,
        sender: &Sender,
        held: VecDeque<Bytes>,
        mut items_bytes: usize,
        measured: Option<usize>,
    ) -> Result<(), Status> {
        for piece in held {
            if !hand_over(sender, piece).await? {
                return Ok(());
            }
        }
        while let Some(items) = self.next().await? {
            items_bytes += items.len();
            if !hand_over(sender, items).await? {
                return Ok(());
            }
        }
        // A converter may answer differently the second time.
        if measured.is_some_and(|measured| measured != items_bytes) {
            return Err(Status::internal("a list changed while it was written"));
        }
        let closing = self.rendering.closing(self.listed > 0, &self.metadata());
        hand_over(sender, closing.into()).await.map(drop)
    }

    /// The items of the next page as they are written; `None` after the last.
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        if self.done {
            return Ok(None);
        }
        let first = self.listed == 0;
        let EncodedPage { page, bytes, keys, last } = if self.is_passed() {
            let form: Arc<dyn RowEncoder> = self.rendering.clone();
            self.listing.next_encoded(&self.request, &form).await?.unwrap_or_default()
        } else {
            let page = self.listing.next(&self.request).await?.unwrap_or_default();
            EncodedPage { page, ..EncodedPage::default() }
        };
        self.done = self.listing.pages.is_done();
        self.revision = self.listing.revision(&page);
        self.count = self.count.or(page.count);
        self.more = page.more;
        let mut items = match bytes {
            Some(bytes) => {
                self.listed += keys;
                self.last = last.map(|(key, _)| key).or(self.last.take());
                bytes
            }
            None => self.decoded(page.kvs).await?,
        };
        if first && !items.is_empty() {
            // Nothing to be separated from.
            items.advance(self.rendering.separator().len());
        }
        Ok(Some(items))
    }

    /// Whether stored bytes are listed without being decoded, where the kind passes them.
    fn is_passed(&self) -> bool {
        self.rendering.passes() && self.listing.selection.is_indexed() && self.deletion.is_none()
    }

    /// The items of a page of which some have to be decoded. Those that have to be converted are so together: a
    /// remote converter is asked once a page.
    async fn decoded(&mut self, kvs: Vec<KeyValue>) -> Result<Bytes, Status> {
        let kind = self.request.kind.clone();
        let strangers: Vec<Found> =
            kvs.iter().filter(|kv| !kind.passes(&kv.value)).cloned().map(Found::from).collect();
        let mut converted = kind.read_all(&strangers).await?.into_iter();
        drop(strangers);
        let room = kvs.iter().map(|kv| kv.value.len() + 64).sum();
        let mut items = BytesMut::with_capacity(room);
        let as_stored = self.is_passed();
        let mut listed = Vec::new();
        for (index, kv) in kvs.into_iter().enumerate() {
            if index % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
            let (key, found, length) = (kv.key.clone(), Found::from(kv), items.len());
            if as_stored && self.rendering.append(&mut items, &found.bytes, found.revision) {
                self.listed += 1;
                self.last = Some(key);
                continue;
            }
            items.truncate(length);
            let object = match kind.passes(&found.bytes) {
                true => kind.read(&found).await?,
                false => converted.next().unwrap_or_default(),
            };
            if !self.listing.selection.matches(&kind, &object) {
                continue;
            }
            if self.listing.limit > 0 && self.listed == self.listing.limit {
                (self.more, self.done) = (true, true);
                break;
            }
            self.rendering.put(&mut items, &object);
            self.listed += 1;
            self.last = Some(key);
            if self.deletion.is_some() {
                let (meta, text) = (object_meta::of(&object), object_meta::text);
                listed.push((text(meta, "namespace").to_owned(), text(meta, "name").to_owned()));
            }
        }
        if let Some(options) = &self.deletion {
            delete_all(&self.request, options, &listed).await?;
        }
        Ok(items.freeze())
    }

    /// The list's own metadata, if it ends here.
    fn metadata(&self) -> Value {
        let rest = self.last.as_ref().filter(|_| self.more).map(|last| {
            let count = self.count.filter(|_| self.listing.counted);
            let remaining = count.map(|count| count.saturating_sub(self.listed as u64));
            (self.listing.token(self.revision, last), remaining)
        });
        self.listing.metadata(self.revision, rest)
    }
}

/// Hands bytes to whoever sends them, a piece at a time; whether there is still a client.
async fn hand_over(sender: &Sender, mut bytes: Bytes) -> Result<bool, Status> {
    while !bytes.is_empty() {
        let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
        match sender.send_timeout(Ok(piece), STALLED).await {
            Ok(()) => {}
            Err(SendTimeoutError::Closed(_)) => return Ok(false),
            Err(SendTimeoutError::Timeout(_)) => return Err(Status::timeout("the client takes nothing", 0)),
        }
    }
    Ok(true)
}
