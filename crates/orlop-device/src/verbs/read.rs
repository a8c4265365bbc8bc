//! Get and List.

use bytes::Bytes;
use orlop_api::labels::Selector;
use orlop_device_client::api::ListMeta;
use orlop_store::{Filter, KeyRange, KeyValue, Read, Revision, Select};

use crate::{error::Error, resource::Resource, selector, wire};

impl Resource {
    pub(crate) async fn get(&self, request: wire::GetRequest) -> Result<wire::GetResponse, Error> {
        let key = self.key(request.namespace.as_deref(), &request.name)?;
        let version = self.versions.parse(request.opts.unwrap_or_default().resource_version())?;
        self.reach(version).await?;
        let object = self.chosen(&self.stored(&key).await?, &Selector::everything())?;
        Ok(wire::GetResponse { object })
    }

    /// Objects in one state of the store: the newest, or exactly the one asked for.
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
        self.reach(version).await?;
        // The index speaks of the present; the past is read whole.
        let at = version.filter(|_| exact);
        let filter = if at.is_some() { Filter::everything() } else { selector::filter(&selector) };
        // Of everything, most is known by its key and revision; of a choice, the labels have to be looked at.
        let everything = selector.is_everything();
        let select = if everything { Select::Keys } else { Select::Values };
        let mut pages = self.store.pages(Read { revision: at, filter, select, ..Read::new(range) })?;
        let (mut items, mut revision, mut bytes) = (Vec::new(), 0, 0);
        while let Some(page) = pages.next().await? {
            if revision == 0 {
                revision = at.unwrap_or(page.revision);
            }
            let found = if everything {
                self.recalled(&page.kvs, revision).await?
            } else {
                self.all_chosen(&page.kvs, &selector)?
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

    /// The objects of a page without values: what is known from memory, the rest from the store as it was at the
    /// same revision, neighbours together.
    async fn recalled(&self, page: &[KeyValue], revision: Revision) -> Result<Vec<Bytes>, Error> {
        let known: Vec<_> = page.iter().map(|kv| (kv, self.encoded.get(&kv.key, kv.revision))).collect();
        let mut objects = Vec::with_capacity(page.len());
        for run in known.chunk_by(|one, next| one.1.is_some() == next.1.is_some()) {
            if let [(first, None), ..] = run {
                let range = KeyRange::starting_at(first.key.clone());
                let read = Read { revision: Some(revision), limit: run.len(), ..Read::new(range) };
                let found = self.store.read(read).await?;
                objects.extend(self.all_chosen(&found.kvs, &Selector::everything())?);
            } else {
                objects.extend(run.iter().filter_map(|(_, object)| object.clone()));
            }
        }
        Ok(objects)
    }

    fn all_chosen(&self, kvs: &[KeyValue], selector: &Selector) -> Result<Vec<Bytes>, Error> {
        kvs.iter().filter_map(|kv| self.chosen(kv, selector).transpose()).collect()
    }
}
