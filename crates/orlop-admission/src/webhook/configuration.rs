//! Webhooks of all configurations of a kind, compiled when a configuration changes.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use orlop_api::{object_meta, status::Status};
use orlop_crd::{WebhookTarget, ca_bundle_problem};
use serde_json::Value;

use super::{
    WebhookKind,
    client::{WebhookClient, WebhookClients},
    review::ReviewVersion,
};
use crate::{
    listers::{Listers, Snapshot},
    matching::{Constraints, MatchConditions},
};

/// A webhook of a configuration.
#[derive(Debug)]
pub(super) struct Hook {
    /// Identifies the webhook among those of all configurations.
    pub(super) uid: String,
    /// Name of its configuration.
    pub(super) configuration: String,
    pub(super) name: String,
    pub(super) constraints: Constraints,
    pub(super) conditions: MatchConditions,
    /// True if a failure of the webhook does not fail the request.
    pub(super) ignores_failures: bool,
    pub(super) reinvocation_if_needed: bool,
    pub(super) side_effects: SideEffects,
    pub(super) timeout: Duration,
    /// `None` if it understands no version that is known here.
    pub(super) version: Option<ReviewVersion>,
    /// The client, or the reason why there is none.
    pub(super) client: Result<Arc<dyn WebhookClient>, String>,
}

/// Side effects of a webhook, as far as dry runs are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SideEffects {
    /// None in a dry run.
    NoneOnDryRun,
    /// Some, or unknown.
    Some,
    /// Not said.
    Unset,
}

impl Hook {
    fn read(
        configuration: &str,
        index_of_name: usize,
        webhook: &Value,
        clients: &dyn WebhookClients,
    ) -> Self {
        let text = |field: &str| webhook[field].as_str().unwrap_or_default();
        let versions = webhook["admissionReviewVersions"].as_array().into_iter().flatten();
        let versions: Vec<String> = versions.filter_map(|item| item.as_str().map(str::to_owned)).collect();
        Self {
            uid: format!("{configuration}/{}/{index_of_name}", text("name")),
            configuration: configuration.to_owned(),
            name: text("name").to_owned(),
            constraints: Constraints::of_webhook(webhook),
            conditions: MatchConditions::compile(webhook, false),
            ignores_failures: text("failurePolicy") == "Ignore",
            reinvocation_if_needed: text("reinvocationPolicy") == "IfNeeded",
            side_effects: match text("sideEffects") {
                "None" | "NoneOnDryRun" => SideEffects::NoneOnDryRun,
                "" => SideEffects::Unset,
                _ => SideEffects::Some,
            },
            timeout: Duration::from_secs(webhook["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30)),
            version: ReviewVersion::first_known(&versions),
            client: client_of(&webhook["clientConfig"], clients),
        }
    }
}

fn client_of(config: &Value, clients: &dyn WebhookClients) -> Result<Arc<dyn WebhookClient>, String> {
    let target =
        WebhookTarget::read(config).ok_or("webhook configuration must have either service or URL")?;
    let ca_bundle = STANDARD.decode(config["caBundle"].as_str().unwrap_or_default()).unwrap_or_default();
    if !ca_bundle.is_empty()
        && let Some(problem) = ca_bundle_problem(&ca_bundle)
    {
        return Err(problem);
    }
    Ok(clients.client(&target, &ca_bundle))
}

/// The webhooks of all configurations of a kind, in order: by the name of the configuration, then as listed.
#[derive(Debug)]
pub(super) struct Source {
    kind: WebhookKind,
    listers: Arc<dyn Listers>,
    clients: Arc<dyn WebhookClients>,
    compiled: Mutex<Compiled>,
}

#[derive(Debug, Default)]
struct Compiled {
    revision: Option<i64>,
    configurations: Vec<(Arc<Value>, Vec<Arc<Hook>>)>,
    hooks: Arc<Vec<Arc<Hook>>>,
}

impl Source {
    pub(super) fn new(
        kind: WebhookKind,
        listers: Arc<dyn Listers>,
        clients: Arc<dyn WebhookClients>,
    ) -> Self {
        Self { kind, listers, clients, compiled: Mutex::default() }
    }

    /// Returns true if there are certainly no webhooks.
    pub(super) fn is_empty(&self) -> bool {
        self.listers.loaded(self.kind.resource()).is_some_and(|snapshot| snapshot.is_empty())
    }

    /// Returns the webhooks.
    pub(super) async fn hooks(&self) -> Result<Arc<Vec<Arc<Hook>>>, Status> {
        let snapshot = self.listers.list(self.kind.resource()).await?;
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if compiled.revision != Some(snapshot.revision()) {
            *compiled = self.compile(&snapshot, &compiled);
        }
        Ok(compiled.hooks.clone())
    }

    /// Compiles the configurations that have changed, and keeps the others.
    fn compile(&self, snapshot: &Snapshot, before: &Compiled) -> Compiled {
        let mut configurations = Vec::new();
        for object in snapshot.iter() {
            let known = before.configurations.iter().find(|(known, _)| Arc::ptr_eq(known, object));
            let hooks = known.map_or_else(|| self.read(object), |(_, hooks)| hooks.clone());
            configurations.push((object.clone(), hooks));
        }
        let hooks = configurations.iter().flat_map(|(_, hooks)| hooks.iter().cloned()).collect();
        Compiled { revision: Some(snapshot.revision()), configurations, hooks: Arc::new(hooks) }
    }

    fn read(&self, object: &Value) -> Vec<Arc<Hook>> {
        let name = object_meta::text(object_meta::of(object), "name");
        let webhooks = object["webhooks"].as_array().map_or(&[][..], Vec::as_slice);
        let read = |(index, webhook): (usize, &Value)| {
            // Names are unique in a configuration since Kubernetes 1.16, and may repeat in older ones.
            let before = webhooks.iter().take(index);
            let repeated = before.filter(|other| other["name"] == webhook["name"]).count();
            Arc::new(Hook::read(name, repeated, webhook, &*self.clients))
        };
        webhooks.iter().enumerate().map(read).collect()
    }
}
