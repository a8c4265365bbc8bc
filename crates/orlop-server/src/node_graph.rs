//! Node authorization of a cluster: a graph of what is in use on its nodes, which follows the store.
//!
//! The graph is loaded when the first node asks: a control plane without nodes keeps none.

use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use orlop_api::{status::Status, user::UserInfo};
use orlop_auth::{
    Authorizer, Decision, Evaluation,
    authorizer::{Authorizing, Rules, decided, deciding},
    node::{Graph, NodeRules, Ruling, Target, node_name},
};
use orlop_store::Revision;
use serde_json::Value;
use tokio::sync::{OnceCell, watch};

use crate::{
    request::Attributes,
    storage::{
        ObjectStore,
        follower::{Follower, Sink},
    },
};

/// Collections that the graph is made of.
const FOLLOWED: &[(&str, Followed)] = &[
    // Volumes before pods: a pod that is known has its volumes known.
    ("core/persistentvolumes/", Followed::Volume),
    ("core/pods/", Followed::Object(Target::Pod)),
    ("storage.k8s.io/volumeattachments/", Followed::Object(Target::VolumeAttachment)),
    ("resource.k8s.io/resourceslices/", Followed::Object(Target::ResourceSlice)),
    ("certificates.k8s.io/podcertificaterequests/", Followed::Object(Target::PodCertificateRequest)),
];

/// The part of the graph that a collection is.
#[derive(Clone, Copy, Debug)]
enum Followed {
    Object(Target),
    Volume,
}

/// Authorizes nodes.
#[derive(Debug)]
pub(crate) struct NodeAuthorizer {
    rules: NodeRules,
    objects: Arc<ObjectStore>,
    graph: Arc<RwLock<Graph>>,
    /// Set once the graph is loaded.
    followers: OnceCell<Vec<Follower>>,
    closing: watch::Receiver<bool>,
}

impl NodeAuthorizer {
    pub(crate) fn new(objects: Arc<ObjectStore>, closing: watch::Receiver<bool>) -> Self {
        Self {
            rules: NodeRules::default(),
            objects,
            graph: Arc::default(),
            followers: OnceCell::new(),
            closing,
        }
    }

    async fn followers(&self) -> Result<&[Follower], Status> {
        let start = || async {
            let mut followers = Vec::new();
            for (collection, followed) in FOLLOWED {
                let sink = GraphSink { graph: self.graph.clone(), followed: *followed };
                let prefix = self.objects.own_key(collection);
                followers.push(Follower::start(&self.objects, prefix, self.closing.clone(), sink).await?);
            }
            Ok(followers)
        };
        self.followers.get_or_try_init(start).await.map(Vec::as_slice)
    }

    /// Returns true if an object is in use on a node. Before it returns false, it catches up with the store: a node
    /// may have heard of its pod before this server's graph has.
    async fn is_used(&self, is_used: impl Fn(&Graph) -> bool) -> Result<bool, Status> {
        let used = || is_used(&self.graph.read().unwrap_or_else(PoisonError::into_inner));
        let followers = self.followers().await?;
        if used() {
            return Ok(true);
        }
        let newest = self.objects.store.revision().await;
        let newest = newest.map_err(|error| crate::storage::status_from_store_error(&error))?;
        for follower in followers {
            follower.catch_up(newest).await;
        }
        Ok(used())
    }
}

impl NodeAuthorizer {
    async fn evaluate(&self, node: &str, attributes: &Attributes) -> Evaluation {
        if node.is_empty() {
            let reason = format!("unknown node for user {:?}", attributes.user.name);
            return Decision::NoOpinion(reason.into()).into();
        }
        let (namespace, name) = (&attributes.namespace, attributes.object_name());
        let used = match self.rules.decide(node, attributes) {
            Ruling::Allow => return Decision::Allow("".into()).into(),
            Ruling::NoOpinion(reason) => return Decision::NoOpinion(reason).into(),
            Ruling::IfUsed(target) => {
                self.is_used(|graph| graph.is_used(node, target, namespace, name)).await
            }
            Ruling::IfVolumeUsed => self.is_used(|graph| graph.is_volume_used(node, name)).await,
        };
        match used {
            Ok(true) => Decision::Allow("".into()).into(),
            Ok(false) => {
                let reason = format!("no relationship found between node '{node}' and this object");
                Decision::NoOpinion(reason.into()).into()
            }
            Err(status) => {
                Evaluation { decision: Decision::NoOpinion("".into()), errors: vec![status.message] }
            }
        }
    }
}

#[async_trait]
impl Authorizer for NodeAuthorizer {
    fn authorize<'a>(&'a self, attributes: &'a Attributes) -> Authorizing<'a> {
        match node_name(&attributes.user) {
            Some(node) => deciding(self.evaluate(node, attributes)),
            None => decided(Decision::NoOpinion("".into())),
        }
    }

    async fn rules(&self, user: &UserInfo, _namespace: &str) -> Rules {
        if node_name(user).is_none() {
            return Rules::default();
        }
        let errors = vec!["node authorizer does not support user rule resolution".to_owned()];
        Rules { incomplete: true, errors, ..Rules::default() }
    }
}

struct GraphSink {
    graph: Arc<RwLock<Graph>>,
    followed: Followed,
}

impl Sink for GraphSink {
    fn reset(&mut self) {
        let mut graph = self.graph.write().unwrap_or_else(PoisonError::into_inner);
        match self.followed {
            Followed::Object(target) => graph.clear(target),
            Followed::Volume => graph.clear_volumes(),
        }
    }

    fn apply(&mut self, key: &str, object: Option<&Value>) {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let mut graph = self.graph.write().unwrap_or_else(PoisonError::into_inner);
        match self.followed {
            Followed::Object(target) => graph.set(target, namespace, name, object),
            Followed::Volume => graph.set_volume(name, object),
        }
    }

    fn publish(&mut self, _revision: Revision) {}
}
