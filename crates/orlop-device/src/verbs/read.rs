//! Get and List.

use bytes::Bytes;
use orlop_api::labels::Selector;
use orlop_device_client::api::ListMeta;
use orlop_store::{Filter, KeyRange, KeyValue, Read, Revision, Select};

use crate::{error::Error, resource::Resource, selector, wire};

impl Resource {
    /// Gets an object.
    pub(crate) async fn get(&self, request: wire::GetRequest) -> Result<wire::GetResponse, Error> {
        let key = self.key(request.namespace.as_deref(), &request.name)?;
        let version = self.versions.parse(request.opts.unwrap_or_default().resource_version())?;
        self.wait_for(version).await?;
        let object = self.encode_matching(&self.stored(&key).await?, &Selector::everything())?;
        Ok(wire::GetResponse { object })
    }

    /// Lists objects at one revision: the newest, or exactly the requested one.
    pub(crate) async fn list(
        &self,
        request: wire::ListRequest,
        limit_bytes: usize,
    ) -> Result<wire::List, Error> {
        let opts = request.opts.unwrap_or_default();
        let range = self.range(request.namespace.as_deref())?;
        let selector = selector::parse(opts.label_selector())?;
        if opts.send_initial_events.is_some() {
            return Err(Error::BadRequest("sendInitialEvents is forbidden for list".into()));
        }
        let (text, how) = (opts.resource_version(), opts.resource_version_match());
        let exact = match how {
            "" | "NotOlderThan" => false,
            "Exact" => true,
            other => return Err(Error::BadRequest(format!("resourceVersionMatch {other:?} is unknown"))),
        };
        if !how.is_empty() && text.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            return Err(Error::BadRequest(why.into()));
        }
        let version = self.versions.parse(text)?;
        if exact && version.is_none() {
            return Err(Error::BadRequest(
                "resourceVersionMatch \"Exact\" is forbidden for version 0".into(),
            ));
        }
        self.wait_for(version).await?;
        // The index covers the newest revision only.
        let at = version.filter(|_| exact);
        let filter = if at.is_some() { Filter::everything() } else { selector::filter(&selector) };
        // Without a selector, keys and revisions suffice to find objects in the cache.
        let everything = selector.is_everything();
        let select = if everything { Select::Keys } else { Select::Values };
        let mut pages = self.store.pages(Read { revision: at, filter, select, ..Read::new(range) })?;
        let (mut items, mut revision, mut bytes) = (Vec::new(), 0, 0);
        while let Some(page) = pages.next().await? {
            if revision == 0 {
                revision = at.unwrap_or(page.revision);
            }
            let found = if everything {
                self.encode_from_cache(&page.kvs, revision).await?
            } else {
                self.encode_all_matching(&page.kvs, &selector)?
            };
            bytes += found.iter().map(|item| item.len() + 8).sum::<usize>();
            items.extend(found);
            if bytes > limit_bytes {
                let why = format!("the list is over {limit_bytes} bytes: narrow it by namespace or labels");
                return Err(Error::TooLarge(why));
            }
        }
        Ok(wire::List {
            type_meta: Some(self.type_meta("List")),
            list_meta: Some(ListMeta { resource_version: Some(self.versions.text(revision)) }),
            items,
        })
    }

    /// Returns the objects of a page without values: from the cache, and those that are not in it from the store at the
    /// same revision, adjacent ones in one read.
    async fn encode_from_cache(&self, page: &[KeyValue], revision: Revision) -> Result<Vec<Bytes>, Error> {
        let known: Vec<_> = page.iter().map(|kv| (kv, self.encoded.get(&kv.key, kv.revision))).collect();
        let mut objects = Vec::with_capacity(page.len());
        for run in known.chunk_by(|one, next| one.1.is_some() == next.1.is_some()) {
            if let [(first, None), ..] = run {
                let range = KeyRange::starting_at(first.key.clone());
                let read = Read { revision: Some(revision), limit: run.len(), ..Read::new(range) };
                let found = self.store.read(read).await?;
                objects.extend(self.encode_all_matching(&found.kvs, &Selector::everything())?);
            } else {
                objects.extend(run.iter().filter_map(|(_, object)| object.clone()));
            }
        }
        Ok(objects)
    }

    fn encode_all_matching(&self, kvs: &[KeyValue], selector: &Selector) -> Result<Vec<Bytes>, Error> {
        kvs.iter().filter_map(|kv| self.encode_matching(kv, selector).transpose()).collect()
    }
}
