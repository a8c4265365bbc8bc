//! The webhook authorizer: asks a server whether a request is allowed, and keeps its answers for a while.

use std::{
    borrow::Cow,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use orlop_api::user::UserInfo;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    configuration::{FailurePolicy, WebhookConfiguration},
    match_conditions::{Match, MatchConditions},
    response_cache::ResponseCache,
    review::{self, ReviewStatus},
};
use crate::{
    authorizer::{Authorizer, Authorizing, Decision, Evaluation, Rules, deciding},
    request::Attributes,
    webhook::{Backoff, WebhookClient, WebhookError},
};

/// Answers that are kept, as in Kubernetes.
const CACHE_ENTRIES_MAX: usize = 8192;
/// Attributes that a client controls are not cached if they are longer: it might fill the cache with them.
const CACHED_ATTRIBUTES_BYTES_MAX: usize = 10_000;
/// Answers with longer reasons are not cached.
const CACHED_REASON_BYTES_MAX: usize = 4096;

/// Asks a webhook.
#[derive(Debug)]
pub struct WebhookAuthorizer {
    name: String,
    client: WebhookClient,
    version: String,
    conditions: MatchConditions,
    on_failure: FailurePolicy,
    cache: ResponseCache<ReviewStatus>,
    authorized_ttl: Duration,
    unauthorized_ttl: Duration,
}

impl WebhookAuthorizer {
    /// Returns the authorizer of a configuration, which must be valid.
    pub fn new(name: &str, configuration: &WebhookConfiguration) -> Result<Self, WebhookError> {
        let client =
            WebhookClient::from_kubeconfig(configuration.kube_config_file.clone(), Backoff::default())?
                .with_attempt_timeout(configuration.timeout);
        Ok(Self {
            name: name.to_owned(),
            client,
            version: configuration.version.clone(),
            conditions: configuration.conditions().unwrap_or_default(),
            on_failure: configuration.failure_policy,
            cache: ResponseCache::new(CACHE_ENTRIES_MAX),
            authorized_ttl: configuration.authorized_ttl,
            unauthorized_ttl: configuration.unauthorized_ttl,
        })
    }

    fn failed(&self, error: String) -> Evaluation {
        let decision = match self.on_failure {
            FailurePolicy::NoOpinion => Decision::NoOpinion(Cow::Borrowed("")),
            FailurePolicy::Deny => Decision::Deny(Cow::Borrowed("")),
        };
        Evaluation { decision, errors: vec![error] }
    }

    async fn ask(&self, mut spec: Value) -> Result<ReviewStatus, String> {
        // Version v1beta1 calls groups so.
        if self.version == "v1beta1"
            && let Some(spec) = spec.as_object_mut()
            && let Some(groups) = spec.remove("groups")
        {
            spec.insert("group".to_owned(), groups);
        }
        let review = json!({
            "apiVersion": format!("authorization.k8s.io/{}", self.version), "kind": "SubjectAccessReview",
            "metadata": {}, "spec": spec, "status": {"allowed": false},
        });
        let answer = self.client.post(&review).await.map_err(|error| error.to_string())?;
        ReviewStatus::of(&answer, &self.version)
    }
}

impl WebhookAuthorizer {
    async fn evaluate(&self, attributes: &Attributes) -> Evaluation {
        let spec = review::spec(attributes);
        match self.conditions.evaluate(&spec) {
            Match::All => {}
            Match::Excluded => return Decision::NoOpinion(Cow::Borrowed("")).into(),
            Match::Failed(error) => return self.failed(error),
        }
        let key = Sha256::digest(spec.to_string()).into();
        let status = match self.cache.get(&key, Instant::now()) {
            Some(status) => status,
            None => match self.ask(spec).await {
                Ok(status) => {
                    let ttl = if status.allowed { self.authorized_ttl } else { self.unauthorized_ttl };
                    if is_cacheable(attributes) && status.reason.len() <= CACHED_REASON_BYTES_MAX {
                        self.cache.insert(key, status.clone(), Instant::now(), ttl);
                    }
                    status
                }
                Err(error) => {
                    tracing::warn!(webhook = self.name, error, "authorization webhook failed");
                    return self.failed(error);
                }
            },
        };
        let reason = Cow::Owned(status.reason);
        match (status.denied, status.allowed) {
            (true, true) => Evaluation {
                decision: Decision::Deny(reason),
                errors: vec![
                    "webhook subject access review returned both allow and deny response".to_owned(),
                ],
            },
            (true, false) => Decision::Deny(reason).into(),
            (false, true) => Decision::Allow(reason).into(),
            (false, false) => Decision::NoOpinion(reason).into(),
        }
    }
}

#[async_trait]
impl Authorizer for WebhookAuthorizer {
    fn authorize<'a>(&'a self, attributes: &'a Attributes) -> Authorizing<'a> {
        deciding(self.evaluate(attributes))
    }

    async fn rules(&self, _user: &UserInfo, _namespace: &str) -> Rules {
        let errors = vec!["webhook authorizer does not support user rule resolution".to_owned()];
        Rules { incomplete: true, errors, ..Rules::default() }
    }
}

/// Returns true if the parts of a request that its client controls are short.
fn is_cacheable(attributes: &Attributes) -> bool {
    let parts = [
        attributes.namespace.len(),
        attributes.verb.as_str().len(),
        attributes.group.len(),
        attributes.version.len(),
        attributes.resource.len(),
        attributes.subresource_name().len(),
        attributes.name.len(),
        attributes.path.len(),
    ];
    parts.iter().sum::<usize>() < CACHED_ATTRIBUTES_BYTES_MAX
}
