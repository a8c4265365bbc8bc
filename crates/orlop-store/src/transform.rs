//! Values that are stored in another form than callers see: encrypted, for example.
//!
//! A [`Transformer`] sits between the store's API and its engine. Values of the keys that it covers are encoded before they
//! are written and decoded when they are read, so that callers, watchers and row encoders see them as they were put. Index
//! terms of these keys are hidden: a filter names both the hidden and the plain value, so that it also finds keys that were
//! written before they were covered.
//!
//! Values of other keys pay one comparison of their first bytes.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use crate::{
    Commit, EncodedPage, Event, Filter, KeyValue, Op, OpResult, Read, ReadResult, Requirement, RowEncoder,
    Terms, Txn, TxnResult,
    error::{Error, Result},
    event::{Previous, VersionId},
};

/// A value as callers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The value.
    pub value: Bytes,
    /// Set if it would be encoded otherwise now.
    pub stale: bool,
}

/// Encodes values that are written, and decodes them when they are read.
#[async_trait::async_trait]
pub trait Transformer: fmt::Debug + Send + Sync {
    /// Returns true if values of a key are encoded or have been.
    fn covers(&self, key: &[u8]) -> bool;

    /// Returns true if there may be covered keys below a prefix.
    fn may_cover(&self, prefix: &[u8]) -> bool;

    /// Returns true if a value has the form of encoded values. Must be cheap.
    fn is_encoded(&self, value: &[u8]) -> bool;

    /// Encodes a value of a covered key. Does not wait. The error is the reason.
    fn encode(&self, key: &[u8], value: &[u8]) -> Result<Bytes, String>;

    /// Decodes a value of a covered key, or an encoded value of any key; `None` if that takes waiting.
    fn decode_now(&self, key: &[u8], value: &[u8]) -> Option<Result<Decoded, String>>;

    /// Decodes a value. May wait for a key service.
    async fn decode(&self, key: &[u8], value: &[u8]) -> Result<Decoded, String>;

    /// Returns true if index terms of a key are hidden.
    fn hides_terms(&self, key: &[u8]) -> bool;

    /// Returns the value of an index term that is stored instead of the plain one.
    fn hide_term(&self, field: &str, value: &str) -> String;
}

/// The transformer of a store, if any.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transform(Option<Arc<dyn Transformer>>);

impl Transform {
    pub(crate) fn new(transformer: Option<Arc<dyn Transformer>>) -> Self {
        Self(transformer)
    }

    // === Writing ===

    /// Encodes the values and terms of a transaction.
    pub(crate) fn encode(&self, mut txn: Txn) -> Result<Txn> {
        let Some(transformer) = &self.0 else { return Ok(txn) };
        for op in txn.then.iter_mut().chain(&mut txn.otherwise) {
            match op {
                Op::Put(put) if transformer.covers(&put.key) => {
                    if !put.keep_value {
                        put.value = transformer
                            .encode(&put.key, &put.value)
                            .map_err(|reason| Error::Transform { key: put.key.clone(), reason })?;
                        put.terms = self.stored_terms(&put.key, std::mem::take(&mut put.terms));
                    }
                }
                Op::Txn(inner) => *inner = self.encode(std::mem::take(inner))?,
                Op::Read(read) => self.hide_filter(read),
                Op::Put(_) | Op::Delete(_) => {}
            }
        }
        Ok(txn)
    }

    /// Returns the terms of a key as they are stored.
    pub(crate) fn stored_terms(&self, key: &[u8], terms: Terms) -> Terms {
        match &self.0 {
            Some(transformer) if transformer.hides_terms(key) => hidden(&**transformer, &terms),
            _ => terms,
        }
    }

    /// Adds the hidden values to the filter of a read.
    pub(crate) fn hide_filter(&self, read: &mut Read) {
        if let Some(filter) = self.stored_filter(read.range.start(), &read.filter) {
            read.filter = filter;
        }
    }

    /// Returns a filter with hidden values beside the plain ones; `None` if it stays as it is.
    pub(crate) fn stored_filter(&self, start: &[u8], filter: &Filter) -> Option<Filter> {
        let transformer = self.0.as_ref().filter(|_| !filter.is_empty())?;
        if !transformer.may_cover(start) {
            return None;
        }
        let both = |field: &String, values: &[String]| -> Vec<String> {
            let hidden = values.iter().map(|value| transformer.hide_term(field, value));
            values.iter().cloned().chain(hidden).collect()
        };
        let requirement = |requirement: &Requirement| match requirement {
            Requirement::In(field, values) => Requirement::In(field.clone(), both(field, values)),
            Requirement::NotIn(field, values) => Requirement::NotIn(field.clone(), both(field, values)),
            other => other.clone(),
        };
        Some(Filter(filter.0.iter().map(requirement).collect()))
    }

    // === Reading ===

    /// Returns true if a value has to be decoded. A covered value in clear is decoded too: it is stale.
    fn concerns(transformer: &dyn Transformer, key: &[u8], value: &[u8]) -> bool {
        transformer.is_encoded(value) || transformer.covers(key)
    }

    async fn decode_kv(&self, kv: &mut KeyValue) -> Result<()> {
        let Some(transformer) = self.0.as_deref().filter(|_| !kv.value.is_empty()) else { return Ok(()) };
        if Self::concerns(transformer, &kv.key, &kv.value) {
            let decoded = transformer.decode(&kv.key, &kv.value).await;
            let decoded = decoded.map_err(|reason| Error::Transform { key: kv.key.clone(), reason })?;
            (kv.value, kv.stale) = (decoded.value, decoded.stale);
        }
        Ok(())
    }

    /// Decodes the values of a page.
    pub(crate) async fn decode_page(&self, page: &mut ReadResult) -> Result<()> {
        if self.0.is_some() {
            for kv in &mut page.kvs {
                self.decode_kv(kv).await?;
            }
        }
        Ok(())
    }

    /// Decodes the values of a page that could not be encoded as stored, and encodes it again.
    pub(crate) async fn decode_encoded(
        &self,
        mut encoded: EncodedPage,
        encoder: Option<&Arc<dyn RowEncoder>>,
    ) -> Result<EncodedPage> {
        if self.0.is_none() || encoded.page.kvs.is_empty() {
            return Ok(encoded);
        }
        self.decode_page(&mut encoded.page).await?;
        Ok(match encoder {
            Some(encoder) => EncodedPage::encode(encoded.page, &**encoder),
            None => encoded,
        })
    }

    /// Decodes the values that a transaction returns.
    pub(crate) async fn decode_result(&self, result: &mut TxnResult) -> Result<()> {
        if self.0.is_none() {
            return Ok(());
        }
        for result in &mut result.results {
            match result {
                OpResult::Put(previous) => {
                    if let Some(kv) = previous {
                        self.decode_kv(kv).await?;
                    }
                }
                OpResult::Delete { previous, .. } => {
                    for kv in previous {
                        self.decode_kv(kv).await?;
                    }
                }
                OpResult::Read(read) => self.decode_page(read).await?,
                OpResult::Txn(inner) => Box::pin(self.decode_result(inner)).await?,
            }
        }
        Ok(())
    }

    /// Decodes a superseded value.
    pub(crate) async fn decode_value(&self, key: &Bytes, value: Bytes) -> Result<Bytes> {
        let mut kv = KeyValue { key: key.clone(), value, ..KeyValue::default() };
        self.decode_kv(&mut kv).await?;
        Ok(kv.value)
    }

    /// Decodes the values of commits read from the log. One that cannot be decoded is damaged to its watchers.
    pub(crate) async fn decode_commits(&self, commits: Vec<Arc<Commit>>) -> Vec<Arc<Commit>> {
        let Some(transformer) = self.0.as_deref() else { return commits };
        let mut decoded = Vec::with_capacity(commits.len());
        for commit in commits {
            if !is_concerned(transformer, &commit) {
                decoded.push(commit);
                continue;
            }
            let mut events = Vec::with_capacity(commit.events.len());
            for event in &commit.events {
                let value = match concerned(transformer, event) {
                    true => Some(transformer.decode(&event.kv.key, &event.kv.value).await),
                    false => None,
                };
                events.push(with_value(event, value));
            }
            decoded.push(Arc::new(Commit { revision: commit.revision, events }));
        }
        decoded
    }

    /// Decodes the values of commits of this process. Their keys are in memory: nothing has to be waited for.
    pub(crate) fn decode_commits_now(&self, commits: Vec<Arc<Commit>>) -> Vec<Arc<Commit>> {
        let Some(transformer) = self.0.as_deref() else { return commits };
        let decoded = |commit: Arc<Commit>| {
            if !is_concerned(transformer, &commit) {
                return commit;
            }
            let event = |event: &Event| {
                let unavailable = || Err("the key is not in memory".to_owned());
                let decode =
                    || transformer.decode_now(&event.kv.key, &event.kv.value).unwrap_or_else(unavailable);
                with_value(event, concerned(transformer, event).then(decode))
            };
            Arc::new(Commit { revision: commit.revision, events: commit.events.iter().map(event).collect() })
        };
        commits.into_iter().map(decoded).collect()
    }
}

fn concerned(transformer: &dyn Transformer, event: &Event) -> bool {
    !event.deleted && !event.damaged && Transform::concerns(transformer, &event.kv.key, &event.kv.value)
}

fn is_concerned(transformer: &dyn Transformer, commit: &Commit) -> bool {
    commit.events.iter().any(|event| concerned(transformer, event))
}

/// Copies an event with another value; damaged if that could not be decoded.
fn with_value(event: &Event, decoded: Option<Result<Decoded, String>>) -> Event {
    let (id, key): (VersionId, Bytes) = (event.id, event.kv.key.clone());
    let mut kv = event.kv.clone();
    match decoded {
        Some(Ok(decoded)) => (kv.value, kv.stale) = (decoded.value, decoded.stale),
        Some(Err(reason)) => {
            tracing::error!(key = %key.escape_ascii(), reason, "a stored value cannot be decoded for watchers");
            return Event::damaged(id, key, kv.revision);
        }
        None if event.damaged => return Event::damaged(id, key, kv.revision),
        None => {}
    }
    let previous = event.previous.as_ref().map(|previous| Previous::new(previous.row.clone()));
    Event::new(id, kv, event.deleted, event.terms.clone(), previous)
}

fn hidden(transformer: &dyn Transformer, terms: &Terms) -> Terms {
    let pairs: Vec<(String, String)> =
        terms.iter().map(|(field, value)| (field.to_owned(), transformer.hide_term(field, value))).collect();
    Terms::new(pairs.iter().map(|(field, value)| (field.as_str(), value.as_str())))
}
