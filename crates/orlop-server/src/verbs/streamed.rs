//! A list that is streamed: stored bytes, copied once, a page at a time. However long the list is and
//! however slow its reader, it holds two pages of the store.

use std::{sync::Arc, time::Duration};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::Response;
use orlop_api::status::Status;
use orlop_store::{Form, FormedPage, KeyValue, Revision};
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
/// Bytes of a piece, and pieces that may wait for a slow client.
const PIECE_BYTES: usize = 60 << 10;
const PIECES: usize = 8;
/// How long a client may take no piece at all.
const STALLED: Duration = Duration::from_secs(60);

/// Objects as a kind serves them, each after a comma.
#[derive(Debug)]
struct Served(Arc<Kind>);

impl Form for Served {
    fn append(&self, to: &mut BytesMut, value: &[u8], revision: Revision) -> bool {
        to.put_u8(b',');
        self.0.pass(to, value, revision)
    }
}

/// A list, so far.
struct Streamed {
    request: Request,
    listing: Listing,
    form: Arc<dyn Form>,
    revision: Revision,
    /// All that there are, if they were counted.
    count: Option<u64>,
    listed: usize,
    /// The key listed last, and whether the list's own limit left out what follows it.
    last: Option<Bytes>,
    more: bool,
}

/// Answers with stored bytes, page after page.
pub(super) async fn stream(request: Request, mut listing: Listing) -> Result<Response<Body>, Status> {
    let form: Arc<dyn Form> = Arc::new(Served(request.kind.clone()));
    let first = listing.next_formed(&request, &form).await?.unwrap_or_default();
    let (revision, count) = (listing.revision(&first.page), first.page.count);
    let kind = &request.kind;
    let opening = format!(
        "{{\"kind\":{},\"apiVersion\":{},\"items\":[",
        Value::from(kind.list_kind.as_str()),
        Value::from(kind.gvk.api_version())
    );
    let mut list = Streamed { request, listing, form, revision, count, listed: 0, last: None, more: false };
    let mut objects = list.take(first).await?;
    // No comma before the first.
    objects.advance(objects.len().min(1));
    if list.listing.pages.is_done() && objects.len() <= WHOLE_BYTES {
        let whole = [opening.as_bytes(), &objects, list.closing().as_bytes()].concat();
        return Ok(answer::bytes(200, "application/json", Bytes::from(whole)));
    }
    let (sender, receiver) = mpsc::channel(PIECES + 1);
    // One place is kept, so that a client that takes nothing can still be told that this is not all.
    let farewell = sender.clone().try_reserve_owned();
    tokio::spawn(async move {
        if let Err(status) = list.send(&sender, opening.into(), objects).await {
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
    /// Sends the opening, the first page, and all that follows.
    async fn send(&mut self, sender: &Sender, opening: Bytes, mut objects: Bytes) -> Result<(), Status> {
        if !hand_over(sender, opening).await? {
            return Ok(());
        }
        loop {
            while !objects.is_empty() {
                let piece = objects.split_to(objects.len().min(PIECE_BYTES));
                if !hand_over(sender, piece).await? {
                    return Ok(());
                }
            }
            match self.listing.next_formed(&self.request, &self.form).await? {
                Some(page) => objects = self.take(page).await?,
                None => break,
            }
        }
        hand_over(sender, self.closing().into()).await.map(drop)
    }

    /// The objects of a page as they are served, each after a comma.
    async fn take(&mut self, page: FormedPage) -> Result<Bytes, Status> {
        let FormedPage { page, bytes } = page;
        self.listed += page.kvs.len();
        self.more = page.more;
        self.last = page.kvs.last().map(|kv| kv.key.clone()).or(self.last.take());
        match bytes {
            Some(bytes) => Ok(bytes),
            None => self.converted(&page.kvs).await,
        }
    }

    /// The same, where some have to be converted: a remote converter is asked once a page.
    async fn converted(&self, kvs: &[KeyValue]) -> Result<Bytes, Status> {
        let kind = &self.request.kind;
        let strangers: Vec<Found> =
            kvs.iter().filter(|kv| !kind.passes(&kv.value)).cloned().map(Found::from).collect();
        let mut converted = kind.read_all(&strangers).await?.into_iter();
        let mut objects = BytesMut::new();
        for kv in kvs {
            objects.put_u8(b',');
            if !kind.pass(&mut objects, &kv.value, kv.revision)
                && let Some(object) = converted.next()
            {
                objects.put_slice(object.to_string().as_bytes());
            }
        }
        Ok(objects.freeze())
    }

    fn closing(&self) -> String {
        let rest = self.last.as_ref().filter(|_| self.more).map(|last| {
            let count = self.count.filter(|_| self.listing.counted);
            let remaining = count.map(|count| count.saturating_sub(self.listed as u64));
            (self.listing.token(self.revision, last), remaining)
        });
        format!("],\"metadata\":{}}}", self.listing.metadata(self.revision, rest))
    }
}

/// Hands a piece to whoever sends it; whether there is still a client.
async fn hand_over(sender: &Sender, piece: Bytes) -> Result<bool, Status> {
    match sender.send_timeout(Ok(piece), STALLED).await {
        Ok(()) => Ok(true),
        Err(SendTimeoutError::Closed(_)) => Ok(false),
        Err(SendTimeoutError::Timeout(_)) => Err(Status::timeout("the client takes nothing", 0)),
    }
}
