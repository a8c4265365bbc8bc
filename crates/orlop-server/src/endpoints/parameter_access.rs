//! Access to the parameters of admission policies: nobody makes a policy read what they may not read themselves.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    group_version::{GroupResource, GroupVersion},
    status::Status,
    user::UserInfo,
};
use serde_json::Value;

use super::{Request, escalation::is_allowed, prepare};

const GROUP: &str = "admissionregistration.k8s.io";

/// Refuses a policy or binding whose writer may not read its parameters. `old` is absent on create.
pub(super) async fn check(request: &Request, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    let kind = &request.kind;
    if kind.gvk.group != GROUP
        || request.attributes.user.is_master()
        || request.attributes.subresource.is_some()
    {
        return Ok(());
    }
    let (field, checked) = match kind.resource.as_str() {
        "validatingadmissionpolicies" | "mutatingadmissionpolicies" => {
            ("paramKind", check_policy(request, object, old).await)
        }
        "validatingadmissionpolicybindings" => {
            ("paramRef", check_binding(request, object, old, "validatingadmissionpolicies").await?)
        }
        "mutatingadmissionpolicybindings" => {
            ("paramRef", check_binding(request, object, old, "mutatingadmissionpolicies").await?)
        }
        _ => return Ok(()),
    };
    let errors =
        checked.map_err(|why| FieldError::forbidden(&FieldPath::root("spec").child(field), why)).err();
    prepare::refuse_invalid(kind, object, &errors.into_iter().collect::<Vec<_>>())
}

/// Requires that the user can get all objects of the kind of parameters.
async fn check_policy(request: &Request, policy: &Value, old: Option<&Value>) -> Result<(), String> {
    let Some(kind) = present(policy, "/spec/paramKind") else { return Ok(()) };
    if old.and_then(|old| present(old, "/spec/paramKind")) == Some(kind) {
        return Ok(());
    }
    let (resource, _) = resource_of(request, kind);
    if is_allowed(request, "get", resource, "*", "*").await {
        return Ok(());
    }
    let text = |field: &str| kind.get(field).and_then(Value::as_str).unwrap_or_default();
    Err(format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
        go_user(&request.attributes.user),
        text("kind"),
        text("apiVersion")
    ))
}

/// Requires that the user can read the parameters that a binding refers to.
async fn check_binding(
    request: &Request,
    binding: &Value,
    old: Option<&Value>,
    policies: &str,
) -> Result<Result<(), String>, Status> {
    let Some(reference) = present(binding, "/spec/paramRef") else { return Ok(Ok(())) };
    let policy_name = |binding: &Value| {
        binding.pointer("/spec/policyName").and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let name = policy_name(binding);
    if old.is_some_and(|old| present(old, "/spec/paramRef") == Some(reference) && policy_name(old) == name) {
        return Ok(Ok(()));
    }
    let kinds = request.cluster.objects.registry.kinds();
    let policy = match kinds.get(GROUP, "v1", policies) {
        Some(kind) => match request.cluster.objects.find(kind, "", &name).await? {
            Some(found) => Some(kind.read(&found).await?),
            None => None,
        },
        None => None,
    };
    let param_kind = policy.as_ref().and_then(|policy| present(policy, "/spec/paramKind"));
    // Without knowing the kind, the user must be allowed to read everything.
    let (resource, is_resolved) = match param_kind {
        Some(kind) => resource_of(request, kind),
        None => (GroupResource::new("*", "*"), true),
    };
    let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
    let verb = if text("name").is_empty() { "list" } else { "get" };
    if is_allowed(request, verb, resource, text("namespace"), text("name")).await {
        return Ok(Ok(()));
    }
    let user = go_user(&request.attributes.user);
    let everything = format!(
        "to determine minimum required permissions and user {user} does not have \"{verb}\" permission for all groups, \
         versions and resources"
    );
    Ok(Err(match (policy.is_some(), is_resolved, param_kind) {
        (false, ..) => format!("unable to get policy {name} {everything}"),
        (true, false, Some(kind)) => {
            let text = |field: &str| kind.get(field).and_then(Value::as_str).unwrap_or_default();
            format!(
                "unable to resolve paramKind &ParamKind{{APIVersion:{},Kind:{},}} {everything}",
                text("apiVersion"),
                text("kind")
            )
        }
        _ => format!("user {user} does not have \"{verb}\" permission on the object referenced by paramRef"),
    }))
}

/// Returns the resource of a kind of parameters, and true; `*` and false for a kind that is not served.
fn resource_of(request: &Request, kind: &Value) -> (GroupResource, bool) {
    let text = |field: &str| kind.get(field).and_then(Value::as_str).unwrap_or_default();
    let Ok(version) = GroupVersion::parse(text("apiVersion")) else {
        return (GroupResource::new("*", "*"), false);
    };
    let kinds = request.cluster.objects.registry.kinds();
    match kinds.serving(&version.with_kind(text("kind"))) {
        Some(found) => (found.group_resource(), true),
        None => (GroupResource::new(version.group, "*"), false),
    }
}

fn present<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    object.pointer(pointer).filter(|value| !value.is_null())
}

/// Prints a user as Go's `%v` does.
fn go_user(user: &UserInfo) -> String {
    let extra: Vec<String> =
        user.extra.iter().map(|(key, values)| format!("{key}:[{}]", values.join(" "))).collect();
    format!("&{{{} {} [{}] map[{}]}}", user.name, user.uid, user.groups.join(" "), extra.join(" "))
}
