//! RBAC of a cluster: an index of its roles and bindings that follows the store.
//!
//! A write of a role or binding waits until this process has observed it, so that it is in force when it is answered.
//! Other servers on the same database follow their own watch of the store: it is in force there as soon as they have
//! heard of it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use orlop_api::{status::Status, user::UserInfo};
use orlop_auth::{
    Authorizer, Decision, Evaluation,
    authorizer::{Authorizing, Rules, decided, deciding},
    rbac::{Change, GROUP, Index, IndexWriter, Target},
};
use orlop_store::Revision;
use serde_json::Value;
use tokio::sync::{OnceCell, watch};

use crate::{
    registry::Kind,
    request::Attributes,
    storage::{
        ObjectStore,
        follower::{Follower, Sink},
    },
};

/// The roles and bindings of one cluster.
#[derive(Debug)]
pub(crate) struct Policy {
    objects: Arc<ObjectStore>,
    index: ArcSwap<Index>,
    /// Revision up to which the index is complete.
    synced: watch::Sender<Revision>,
    /// Set once the index is loaded.
    loaded: OnceCell<()>,
    /// True once the server shuts down.
    closing: watch::Receiver<bool>,
}

impl Policy {
    pub(crate) fn new(objects: Arc<ObjectStore>, closing: watch::Receiver<bool>) -> Self {
        Self {
            objects,
            index: ArcSwap::default(),
            synced: watch::Sender::new(0),
            loaded: OnceCell::new(),
            closing,
        }
    }

    /// Loads the index, and follows the store from then on. Does nothing if it is loaded.
    pub(crate) async fn load(self: &Arc<Self>) -> Result<(), Status> {
        let follow = || async {
            let prefix = self.objects.own_key(&format!("{GROUP}/"));
            let sink = PolicySink { policy: self.clone(), writer: IndexWriter::default() };
            Follower::start(&self.objects, prefix, self.closing.clone(), sink).await.map(drop)
        };
        self.loaded.get_or_try_init(follow).await.copied()
    }

    /// Returns the current snapshot of the index. Loads it first if it is not.
    pub(crate) async fn index(self: &Arc<Self>) -> Result<arc_swap::Guard<Arc<Index>>, Status> {
        if !self.loaded.initialized() {
            self.load().await?;
        }
        Ok(self.index.load())
    }

    /// Waits until a revision is in force in this process. An index that is not loaded will contain it. There is no
    /// time-out but the request's: a write that is not in force is not answered as if it were.
    pub(crate) async fn wait_for(&self, revision: Revision) {
        if !self.loaded.initialized() {
            return;
        }
        let (mut synced, mut closing) = (self.synced.subscribe(), self.closing.clone());
        tokio::select! {
            _ = synced.wait_for(|synced| *synced >= revision) => {}
            // Nothing follows the store any more, and nobody is served who could be allowed too much.
            _ = closing.wait_for(|closing| *closing) => {}
        }
    }
}

/// Makes the next snapshot of the index, and puts it in force once it is complete.
struct PolicySink {
    policy: Arc<Policy>,
    writer: IndexWriter,
}

impl Sink for PolicySink {
    fn reset(&mut self) {
        self.writer = IndexWriter::default();
    }

    fn apply(&mut self, key: &str, object: Option<&Value>) {
        let Some((resource, rest)) = key.split_once('/') else { return };
        let (target, namespaced) = match resource {
            "clusterroles" => (Target::Role, false),
            "roles" => (Target::Role, true),
            "clusterrolebindings" => (Target::Binding, false),
            "rolebindings" => (Target::Binding, true),
            _ => return,
        };
        let named = if namespaced { rest.split_once('/') } else { Some(("", rest)) };
        if let Some((namespace, name)) = named {
            self.writer.apply(&Change { target, namespace, name, object });
        }
    }

    fn publish(&mut self, revision: Revision) {
        self.policy.index.store(Arc::new(self.writer.snapshot()));
        self.policy.synced.send_modify(|synced| *synced = (*synced).max(revision));
    }
}

/// Returns true if a kind is a role or a binding.
pub(crate) fn is_rbac(kind: &Kind) -> bool {
    kind.gvk.group == GROUP
}

/// Authorizes by roles and bindings.
#[derive(Debug)]
pub(crate) struct RbacAuthorizer(pub(crate) Arc<Policy>);

#[async_trait]
impl Authorizer for RbacAuthorizer {
    fn authorize<'a>(&'a self, attributes: &'a Attributes) -> Authorizing<'a> {
        if self.0.loaded.initialized() {
            return decided(self.0.index.load().authorize(attributes));
        }
        if is_probe(attributes) {
            return decided(Decision::Allow("the server is starting".into()));
        }
        deciding(async {
            match self.0.index().await {
                Ok(index) => index.authorize(attributes).into(),
                Err(status) => Evaluation {
                    decision: Decision::NoOpinion("".into()),
                    errors: vec![format!("RBAC: roles and bindings are not loaded: {}", status.message)],
                },
            }
        })
    }

    async fn rules(&self, user: &UserInfo, namespace: &str) -> Rules {
        match self.0.index().await {
            Ok(index) => index.review(user, namespace),
            Err(status) => Rules { incomplete: true, errors: vec![status.message], ..Rules::default() },
        }
    }
}

/// Returns true for probes, which ask how far a start is before there are roles that could allow it.
fn is_probe(attributes: &Attributes) -> bool {
    !attributes.is_resource_request
        && matches!(attributes.verb.as_str(), "get" | "head")
        && matches!(attributes.path.as_str(), "/healthz" | "/livez" | "/readyz")
}
