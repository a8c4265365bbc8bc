//! Streams a list into a response, a page at a time. However long the list and however slow its reader, two
//! pages of the store and their encoding are in memory. Pages begin small: of a list that nobody reads, only the first
//! is held.
//!
//! Protobuf writes the length of a list before its items. The pages that are held tell the length of a short
//! list; the rest of a long one is encoded twice, the first time only to measure it.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::{Buf, Bytes, BytesMut};
use http::Response;
use orlop_api::{object_meta, status::Status};
use orlop_store::{EncodedPage, KeyValue, Revision, RowEncoder};
use serde_json::Value;
use tokio::{
    sync::mpsc::{self, Permit},
    time::{Instant, timeout},
};

use super::{Request, list_encoder::ListEncoder, listing::Listing, unreadable};
use crate::{
    http::{
        body::{Aborted, Body},
        response,
        stream_budget::{HeldBytes, StreamBudget},
    },
    registry::Found,
};

/// Bytes of a list up to which it is sent as a complete body. Longer ones are worth compressing.
const COMPLETE_BYTES_MAX: usize = 128 << 10;
/// Bytes of a list that are held before its response starts, where that must be late.
const HELD_BYTES_MAX: usize = 4 << 20;
/// Bytes of a chunk, and chunks that are buffered for a slow client.
const CHUNK_BYTES: usize = 60 << 10;
const BUFFERED_CHUNKS: usize = 3;
/// Interval at which the patience with a client that reads nothing is checked.
const STALLED_CHECK: Duration = Duration::from_secs(1);
/// Objects that are decoded before the task yields.
const OBJECTS_PER_YIELD: usize = 32;

/// Source of the encoded pages of a list.
pub(super) trait PageSource: Send + 'static {
    /// Returns the list that the pages are of.
    fn list(&self) -> &ListPages;

    /// Returns true if a failure must be reported as a Status for as long as possible: the response starts
    /// only once many pages are held.
    fn holds_response(&self) -> bool {
        self.list().encoder.has_length_prefix()
    }

    /// Returns the encoded items of the next page; `None` after the last.
    fn next(&mut self) -> impl Future<Output = Result<Option<Bytes>, Status>> + Send;
}

/// The pages of a list. A clone continues on its own.
#[derive(Clone)]
pub(super) struct ListPages {
    pub(super) request: Arc<Request>,
    encoder: Arc<ListEncoder>,
    listing: Listing,
    revision: Revision,
    /// The number of objects, if it was counted.
    count: Option<u64>,
    listed: usize,
    /// The last key listed.
    last: Option<Bytes>,
    /// True if the limit cut off objects after the last key.
    more: bool,
    done: bool,
    /// Namespaces and names of the last page's objects, if they are collected.
    names: Option<Vec<(String, String)>>,
}

impl ListPages {
    pub(super) fn new(request: Request, listing: Listing) -> Result<Self, Status> {
        let encoder = Arc::new(ListEncoder::of(&request)?);
        Ok(Self {
            request: Arc::new(request),
            encoder,
            listing,
            revision: 0,
            count: None,
            listed: 0,
            last: None,
            more: false,
            done: false,
            names: None,
        })
    }

    /// Collects the namespaces and names of objects, which are then decoded.
    pub(super) fn with_names(self) -> Self {
        Self { names: Some(Vec::new()), ..self }
    }

    /// Takes the namespaces and names of the last page's objects.
    pub(super) fn take_names(&mut self) -> Vec<(String, String)> {
        self.names.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns true if stored bytes are listed without being decoded, where the kind allows it.
    fn copies_stored(&self) -> bool {
        self.encoder.copies_stored() && self.listing.selection.is_indexed() && self.names.is_none()
    }

    /// Encodes a page of which some objects have to be decoded. Those that need conversion are converted
    /// together: a webhook is called once per page.
    async fn encode(&mut self, kvs: Vec<KeyValue>) -> Result<Bytes, Status> {
        let kind = self.request.kind.clone();
        let unconverted: Vec<Found> =
            kvs.iter().filter(|kv| !kind.serves_stored(&kv.value)).cloned().map(Found::from).collect();
        let converted = kind.read_all(&unconverted).await;
        let mut converted = converted.map_err(|error| unreadable::of_list(&kind, error))?.into_iter();
        drop(unconverted);
        let capacity = kvs.iter().map(|kv| kv.value.len() + 64).sum();
        let mut items = BytesMut::with_capacity(capacity);
        let copies_stored = self.copies_stored();
        for (index, kv) in kvs.into_iter().enumerate() {
            if index % OBJECTS_PER_YIELD == OBJECTS_PER_YIELD - 1 {
                tokio::task::yield_now().await;
            }
            let (key, found, length) = (kv.key.clone(), Found::from(kv), items.len());
            if copies_stored && self.encoder.append(&mut items, &found.bytes, found.revision) {
                self.listed += 1;
                self.last = Some(key);
                continue;
            }
            items.truncate(length);
            let object = match kind.serves_stored(&found.bytes) {
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
            self.encoder.put(&mut items, &object);
            self.listed += 1;
            self.last = Some(key);
            if let Some(names) = &mut self.names {
                let (meta, text) = (object_meta::of(&object), object_meta::text);
                names.push((text(meta, "namespace").to_owned(), text(meta, "name").to_owned()));
            }
        }
        Ok(items.freeze())
    }

    /// Records the size of the collection, which the next list's work is estimated by. `items_bytes` is that of the
    /// objects listed.
    fn record_size(&self, items_bytes: usize) {
        if !self.listing.is_of_all {
            return;
        }
        let listed = self.listed as u64;
        let objects = if self.more { self.count.unwrap_or(listed) } else { listed };
        let average = (items_bytes as u64).div_ceil(listed.max(1));
        let statistics = &self.request.cluster.flow_control.controller.statistics;
        statistics.record(&self.request.attributes, objects, objects.saturating_mul(average));
    }

    /// Returns the metadata of the list, if it ends here.
    fn metadata(&self) -> Value {
        let rest = self.last.as_ref().filter(|_| self.more).map(|last| {
            let count = self.count.filter(|_| self.listing.counted);
            let remaining = count.map(|count| count.saturating_sub(self.listed as u64));
            (self.listing.token(self.revision, last), remaining)
        });
        self.listing.metadata(self.revision, rest)
    }
}

impl PageSource for ListPages {
    fn list(&self) -> &ListPages {
        self
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        if self.done {
            return Ok(None);
        }
        let first = self.listed == 0;
        let EncodedPage { page, bytes, keys, last } = if self.copies_stored() {
            let form: Arc<dyn RowEncoder> = self.encoder.clone();
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
            None => self.encode(page.kvs).await?,
        };
        if first && !items.is_empty() {
            // No separator before the first item.
            items.advance(self.encoder.separator().len());
        }
        Ok(Some(items))
    }
}

/// Responds with the pages of a list.
pub(super) async fn respond(mut source: impl PageSource) -> Result<Response<Body>, Status> {
    let encoder = source.list().encoder.clone();
    let media_type = source.list().request.negotiated.encoding.media_type();
    let held_max = if source.holds_response() { HELD_BYTES_MAX } else { COMPLETE_BYTES_MAX };
    let (mut held, mut held_bytes) = (VecDeque::new(), 0);
    while held_bytes <= held_max
        && let Some(items) = source.next().await?
    {
        held_bytes += items.len();
        held.push_back(items);
    }
    let mut length = held_bytes;
    let mut metadata = source.list().metadata();
    if encoder.has_length_prefix() && !source.list().done {
        let mut ahead = source.list().clone();
        while let Some(items) = ahead.next().await? {
            length += items.len();
        }
        metadata = ahead.metadata();
    }
    let head = encoder.head(length, &metadata);
    if source.list().done && held_bytes <= COMPLETE_BYTES_MAX {
        let tail = encoder.tail(source.list().listed > 0, &metadata);
        source.list().record_size(held_bytes);
        let parts = std::iter::once(head.into()).chain(held).chain([tail.into()]);
        let complete: Vec<Bytes> = parts.collect();
        return Ok(response::bytes(200, media_type, complete.concat()));
    }
    held.push_front(head.into());
    let measured = encoder.has_length_prefix().then_some(length);
    let (sender, receiver) = mpsc::channel(BUFFERED_CHUNKS + 1);
    // Reserved, so that the body of a client that reads nothing can still be aborted.
    let abort = sender.clone().try_reserve_owned();
    let budget = source.list().request.cluster.stream_budget.clone();
    tokio::spawn(async move {
        let sink = Sink { sender, budget };
        if let Err(status) = send(&mut source, &sink, held, held_bytes, measured).await {
            // The response has started: aborting it is the only way to report the failure.
            tracing::warn!(message = status.message, "list aborted");
            if let Ok(abort) = abort {
                abort.send(Err(Aborted));
            }
        }
    });
    Ok(response::bytes(200, media_type, Body::Stream(receiver)))
}

/// The body that is streamed to.
struct Sink {
    sender: mpsc::Sender<Result<Bytes, Aborted>>,
    budget: StreamBudget,
}

/// Sends what is held, of which `items_bytes` are items, and the rest of the list.
async fn send(
    source: &mut impl PageSource,
    sink: &Sink,
    held: VecDeque<Bytes>,
    mut items_bytes: usize,
    measured: Option<usize>,
) -> Result<(), Status> {
    let waiting: HeldBytes = sink.budget.hold(held.iter().map(Bytes::len).sum());
    for bytes in held {
        if !sink.send(bytes).await? {
            return Ok(());
        }
    }
    drop(waiting);
    while let Some(items) = source.next().await? {
        items_bytes += items.len();
        let _waiting = sink.budget.hold(items.len());
        if !sink.send(items).await? {
            return Ok(());
        }
    }
    // A conversion webhook may answer differently the second time.
    if measured.is_some_and(|measured| measured != items_bytes) {
        return Err(Status::internal("the length of a list changed while it was sent"));
    }
    let list = source.list();
    list.record_size(items_bytes);
    let tail = list.encoder.tail(list.listed > 0, &list.metadata());
    sink.send(tail.into()).await.map(drop)
}

impl Sink {
    /// Sends bytes in chunks; false once the client has gone.
    async fn send(&self, mut bytes: Bytes) -> Result<bool, Status> {
        while !bytes.is_empty() {
            let chunk = bytes.split_to(bytes.len().min(CHUNK_BYTES));
            match self.reserve().await? {
                Some(permit) => permit.send(Ok(chunk)),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Waits until the client has read enough for another chunk; `None` once it has gone.
    async fn reserve(&self) -> Result<Option<Permit<'_, Result<Bytes, Aborted>>>, Status> {
        if let Ok(permit) = self.sender.try_reserve() {
            return Ok(Some(permit));
        }
        let started = Instant::now();
        loop {
            match timeout(STALLED_CHECK, self.sender.reserve()).await {
                Ok(reserved) => return Ok(reserved.ok()),
                Err(_) if started.elapsed() >= self.budget.patience() => {
                    return Err(Status::timeout("the client reads nothing", 0));
                }
                Err(_) => {}
            }
        }
    }
}
