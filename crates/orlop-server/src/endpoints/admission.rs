//! Runs the admission chain for a request.

use std::borrow::Cow;

use orlop_admission::{AdmissionRequest, Operation, Phase, Reinvocation};
use orlop_api::{
    group_version::GroupVersionKind, managed_fields::ManagedFields, object_meta, status::Status,
};
use serde_json::{Value, json};

use super::{
    Request,
    decoder::{self, BodySchema},
    preconditions, prepare,
    scale_view::{scale_kind, scale_of, set_replicas},
};
use crate::{
    object::metadata_mut,
    request::{Subresource, Verb},
};

/// Runs the mutating pass, then restores the invariants of the object's schema.
pub(super) async fn mutate(request: &Request, object: &mut Value, old: Option<&Value>) -> Result<(), Status> {
    let operation = if old.is_none() { Operation::Create } else { Operation::Update };
    if !is_handled(request, Phase::Mutating, operation) {
        return Ok(());
    }
    let call = Call::new(request, operation, &request.kind.gvk, object);
    if call.is_idle(Phase::Mutating) {
        return Ok(());
    }
    if operation == Operation::Create {
        // A namespace that does not exist is reported before anything that is missing in it.
        preconditions::check_namespace(request, object).await?;
    }
    if let Some(old) = old.filter(|_| is_scale(request)) {
        return mutate_scale(request, object, old).await;
    }
    let managed_before = object.pointer("/metadata/managedFields").cloned();
    let mutated = call.mutate(object, old).await;
    preconditions::prefer_namespace(request, object, operation, mutated).await?;
    // Authorization and quotas are of the namespace in the path.
    prepare::set_namespace(request, object)?;
    let is_same = object.pointer("/metadata/managedFields") == managed_before.as_ref();
    if !is_same && let Err(why) = ManagedFields::of(object) {
        let metadata = metadata_mut(object);
        match managed_before {
            Some(before) => metadata.insert("managedFields".into(), before),
            None => metadata.remove("managedFields"),
        };
        request.warn(format!(
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an \
             outdated mutating admission controller; please fix your requests: {why}"
        ));
    }
    decoder::prune_again(request, BodySchema::of(request, &request.kind.gvk)?, object)?;
    prepare::deduplicate_owners(request, object, " after mutating admission happens");
    request.kind.set_defaults(object);
    Ok(())
}

/// Runs the mutating pass of an object's scale, and sets its replicas.
async fn mutate_scale(request: &Request, object: &mut Value, old: &Value) -> Result<(), Status> {
    let (mut scale, _) = scale_of(&request.kind, object)?;
    let (old, _) = scale_of(&request.kind, old)?;
    let (before, gvk) = (scale.clone(), scale_kind());
    Call::new(request, Operation::Update, &gvk, &scale).mutate(&mut scale, Some(&old)).await?;
    if scale == before { Ok(()) } else { set_replicas(request, object, &scale) }
}

/// Runs the validating pass of a create or update. `old` is absent on create.
pub(super) async fn validate(request: &Request, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    let operation = if old.is_none() { Operation::Create } else { Operation::Update };
    if !is_handled(request, Phase::Validating, operation) {
        return Ok(());
    }
    if let Some(old) = old.filter(|_| is_scale(request)) {
        let ((scale, _), (old, _)) = (scale_of(&request.kind, object)?, scale_of(&request.kind, old)?);
        return Call::new(request, operation, &scale_kind(), &scale).validate(Some(&scale), Some(&old)).await;
    }
    let mut call = Call::new(request, operation, &request.kind.gvk, object);
    if call.name.is_empty() {
        // A generated name is known by now.
        call.name = Cow::Owned(object_meta::text(object_meta::of(object), "name").to_owned());
    }
    let validated = call.validate(Some(object), old).await;
    preconditions::prefer_namespace(request, object, operation, validated).await
}

/// Runs both passes of a delete.
pub(super) async fn delete(request: &Request, old: &Value) -> Result<(), Status> {
    let call = Call::new(request, Operation::Delete, &request.kind.gvk, old);
    if is_handled(request, Phase::Mutating, Operation::Delete) {
        call.mutate(&mut Value::Null, Some(old)).await?;
    }
    if is_handled(request, Phase::Validating, Operation::Delete) {
        call.validate(None, Some(old)).await?;
    }
    Ok(())
}

/// Runs the mutating pass of a subresource that is an object of its own and is never stored, such as a binding.
pub(super) async fn mutate_virtual(request: &Request, object: &mut Value) -> Result<(), Status> {
    if !is_handled(request, Phase::Mutating, Operation::Create) {
        return Ok(());
    }
    Call::new(request, Operation::Create, virtual_kind(request), object).mutate(object, None).await
}

/// Runs the validating pass of a subresource that is never stored, once it is complete.
pub(super) async fn validate_virtual(request: &Request, object: &Value) -> Result<(), Status> {
    if !is_handled(request, Phase::Validating, Operation::Create) {
        return Ok(());
    }
    Call::new(request, Operation::Create, virtual_kind(request), object).validate(Some(object), None).await
}

/// Returns the kind of a subresource's objects.
fn virtual_kind(request: &Request) -> &GroupVersionKind {
    let subresource = request.kind.subresource(request.attributes.subresource_name());
    subresource.map_or(&request.kind.gvk, |subresource| &subresource.gvk)
}

/// Runs both passes of a connection, such as exec. The object is its options.
pub(super) async fn connect(request: &Request) -> Result<(), Status> {
    let handled = |phase| is_handled(request, phase, Operation::Connect);
    if !handled(Phase::Mutating) && !handled(Phase::Validating) {
        return Ok(());
    }
    let gvk = virtual_kind(request);
    let options = connect_options(request, gvk);
    let call = Call::new(request, Operation::Connect, gvk, &options);
    // A change of the options would have to change the request, which is on its way to a node as it is.
    call.mutate(&mut options.clone(), None).await?;
    call.validate(Some(&options), None).await
}

/// Returns true if the objects of a request are scales.
fn is_scale(request: &Request) -> bool {
    request.attributes.subresource == Some(Subresource::Scale)
}

fn is_handled(request: &Request, phase: Phase, operation: Operation) -> bool {
    let attributes = &request.attributes;
    !request.cluster.admission().is_empty(phase, operation, &attributes.group, &attributes.resource)
}

/// A request's call of the chain.
struct Call<'a> {
    request: &'a Request,
    operation: Operation,
    kind: &'a GroupVersionKind,
    name: Cow<'a, str>,
    reinvocation: Reinvocation,
}

impl<'a> Call<'a> {
    fn new(request: &'a Request, operation: Operation, kind: &'a GroupVersionKind, object: &Value) -> Self {
        let name = match request.attributes.name.as_str() {
            // The objects of a collection are deleted without their names, as in Kubernetes.
            "" if operation == Operation::Delete => Cow::Borrowed(""),
            "" => Cow::Owned(object_meta::text(object_meta::of(object), "name").to_owned()),
            name => Cow::Borrowed(name),
        };
        Self { request, operation, kind, name, reinvocation: Reinvocation::default() }
    }

    /// Returns true if no plugin has anything to do in a pass.
    fn is_idle(&self, phase: Phase) -> bool {
        let admission = self.admission(&|| Value::Null);
        self.request.cluster.admission().is_idle(phase, &admission)
    }

    async fn mutate(&self, object: &mut Value, old: Option<&Value>) -> Result<(), Status> {
        let options = || options(self.request, self.operation);
        let admission = self.admission(&options);
        self.request.cluster.admission().mutate(&admission, object, old).await
    }

    async fn validate(&self, object: Option<&Value>, old: Option<&Value>) -> Result<(), Status> {
        let options = || options(self.request, self.operation);
        let admission = self.admission(&options);
        self.request.cluster.admission().validate(&admission, object, old).await
    }

    fn admission<'b>(&'b self, options: &'b (dyn Fn() -> Value + Send + Sync)) -> AdmissionRequest<'b> {
        let request = self.request;
        AdmissionRequest {
            operation: self.operation,
            attributes: &request.attributes,
            name: Cow::Borrowed(&*self.name),
            kind: self.kind,
            options,
            dry_run: !request.query.text("dryRun").is_empty(),
            warnings: &request.warnings,
            audit: request.audit.as_deref(),
            reinvocation: &self.reinvocation,
            deadline: request.deadline,
        }
    }
}

/// Returns the options of a connection, such as PodExecOptions, from its query. No schema describes these types.
fn connect_options(request: &Request, gvk: &GroupVersionKind) -> Value {
    let mut options = json!({"kind": gvk.kind, "apiVersion": gvk.api_version()});
    for (name, text) in request.query.iter() {
        options[name] = match name {
            "stdin" | "stdout" | "stderr" | "tty" => request.query.switch(name).unwrap_or_default().into(),
            "command" => request.query.all(name).collect(),
            "ports" => request.query.all(name).filter_map(|port| port.parse::<i64>().ok()).collect(),
            _ => text.into(),
        };
    }
    // Proxies have the rest of the path.
    if request.attributes.subresource == Some(Subresource::Proxy) {
        options["path"] = format!("/{}", request.attributes.rest).into();
    }
    options
}

/// Returns the options of a write as an object: those of a delete from its body, if it has one.
fn options(request: &Request, operation: Operation) -> Value {
    let kind = match (operation, &request.attributes.verb) {
        (Operation::Connect, _) => return Value::Null,
        (Operation::Create, _) => "CreateOptions",
        (Operation::Delete, _) => "DeleteOptions",
        (Operation::Update, Verb::Patch) => "PatchOptions",
        (Operation::Update, _) => "UpdateOptions",
    };
    let mut options = match operation {
        Operation::Delete => decoder::delete_options(request).unwrap_or_default(),
        _ => Value::Null,
    };
    if !options.is_object() {
        options = json!({});
        for name in ["fieldManager", "fieldValidation", "propagationPolicy"] {
            if let Some(value) = request.query.get(name) {
                options[name] = value.into();
            }
        }
    }
    options["apiVersion"] = "meta.k8s.io/v1".into();
    options["kind"] = kind.into();
    let dry_run: Vec<&str> = request.query.all("dryRun").collect();
    if !dry_run.is_empty() {
        options["dryRun"] = dry_run.into();
    }
    options
}
