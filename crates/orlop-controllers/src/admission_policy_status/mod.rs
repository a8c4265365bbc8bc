//! Status of ValidatingAdmissionPolicies: warnings about expressions that do not fit the types of the objects that the
//! policy matches, by the schemas that the server publishes.

mod type_checking;

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt;
use http::Request;
use k8s_openapi::{
    api::admissionregistration::v1::{ExpressionWarning, ValidatingAdmissionPolicy},
    apimachinery::pkg::apis::meta::v1::APIResourceList,
};
use orlop_api::group_version::{GroupVersion, GroupVersionKind};
use orlop_cel::Schema;
use orlop_client::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    watch_kind,
    watcher::{self, Event},
};
use serde_json::{Value, json};

use self::type_checking::{Types, check, resources_to_check, schema_of};
use crate::{
    runtime::{Action, Context, WorkQueue},
    status::is_not_found,
};

/// Name of the controller.
pub(crate) const NAME: &str = "validatingadmissionpolicy-status-controller";
/// Manager of the fields that it applies.
const FIELD_MANAGER: &str = "validatingadmissionpolicy-status";

/// Policies that are checked at a time.
const CONCURRENCY: usize = 2;

/// Checks policies, for ever.
pub(crate) async fn run(context: Context) {
    let queue = context.work_queue();
    let api = Api::<ValidatingAdmissionPolicy>::all(context.client.clone());
    tokio::select! {
        () = watch(api, &queue) => {}
        () = queue.run(CONCURRENCY, |name: String| reconcile(context.client.clone(), name)) => {}
    }
}

async fn watch(api: Api<ValidatingAdmissionPolicy>, queue: &WorkQueue<String>) {
    let mut changes = watch_kind(&api, watcher::Config::default());
    while let Some(change) = changes.next().await {
        match change {
            Ok(Event::InitApply(policy) | Event::Apply(policy)) if !is_checked(&policy) => {
                queue.add(policy.name_any());
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "watch failed; retrying with back-off"),
        }
    }
}

fn is_checked(policy: &ValidatingAdmissionPolicy) -> bool {
    let observed = policy.status.as_ref().and_then(|status| status.observed_generation);
    policy.metadata.generation.unwrap_or_default() <= observed.unwrap_or_default()
}

async fn reconcile(client: Client, name: String) -> orlop_client::Result<Action> {
    let api = Api::<ValidatingAdmissionPolicy>::all(client.clone());
    let Some(policy) = api.get_opt(&name).await?.filter(|policy| !is_checked(policy)) else {
        return Ok(Action::Done);
    };
    let generation = policy.metadata.generation;
    let types = find_types(&client, &policy).await?;
    // A policy may have very many expressions.
    let checked = tokio::task::spawn_blocking(move || check(&policy, &types)).await;
    let applied = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "status": {"observedGeneration": generation, "typeChecking": type_checking(&checked.unwrap_or_default())},
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    match api.patch_status(&name, &params, &Patch::Apply(applied)).await {
        Err(error) if is_not_found(&error) => Ok(Action::Done),
        patched => patched.map(|_| Action::Done),
    }
}

fn type_checking(warnings: &[ExpressionWarning]) -> Value {
    if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) }
}

/// Finds the types of the objects that a policy matches, and of its parameters. Kinds that are not served are left out.
async fn find_types(client: &Client, policy: &ValidatingAdmissionPolicy) -> orlop_client::Result<Types> {
    let mut kinds = BTreeSet::new();
    for (version, resources) in resources_to_check(policy) {
        let found: Option<APIResourceList> = get(client, &path("", &version)).await?;
        let found = found.map(|found| found.resources).unwrap_or_default();
        let named = found.into_iter().filter(|resource| resources.contains(&resource.name));
        kinds.extend(named.map(|resource| version.with_kind(resource.kind)));
    }
    let mut documents = BTreeMap::new();
    let mut objects = Vec::new();
    for kind in kinds.into_iter().take(type_checking::TYPES_MAX) {
        if let Some(schema) = find_schema(client, &mut documents, &kind).await? {
            objects.push((kind, schema));
        }
    }
    let param_kind = policy.spec.as_ref().and_then(|spec| spec.param_kind.as_ref()).and_then(|param| {
        let version = GroupVersion::parse(param.api_version.as_deref()?).ok()?;
        Some(version.with_kind(param.kind.clone()?))
    });
    let params = match &param_kind {
        Some(kind) => find_schema(client, &mut documents, kind).await?,
        None => None,
    };
    Ok(Types { objects, params, has_params: param_kind.is_some() })
}

async fn find_schema(
    client: &Client,
    documents: &mut BTreeMap<GroupVersion, Value>,
    kind: &GroupVersionKind,
) -> orlop_client::Result<Option<Schema>> {
    let version = kind.group_version();
    if !documents.contains_key(&version) {
        let document: Option<Value> = get(client, &path("/openapi/v3", &version)).await?;
        documents.insert(version.clone(), document.unwrap_or_default());
    }
    Ok(documents.get(&version).and_then(|document| schema_of(document, kind)))
}

fn path(prefix: &str, version: &GroupVersion) -> String {
    match version.group.as_str() {
        "" => format!("{prefix}/api/{}", version.version),
        group => format!("{prefix}/apis/{group}/{}", version.version),
    }
}

/// Requests a document; `None` if there is none.
async fn get<T: serde::de::DeserializeOwned>(client: &Client, path: &str) -> orlop_client::Result<Option<T>> {
    // A rule may name a version that is no path.
    let Ok(request) = Request::get(path).body(Vec::new()) else { return Ok(None) };
    match client.request(request).await {
        Ok(document) => Ok(Some(document)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
