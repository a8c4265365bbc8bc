//! Kubernetes' authorizer library.
//!
//! An expression builds the attributes of a request step by step and `check(verb)` authorizes it. The caller binds an
//! [`Authorizer`] to the variable `authorizer` with [`authorizer_value`]. Expressions are evaluated synchronously: an
//! authorizer that has to wait interrupts the evaluation.

use std::fmt;
use std::sync::Arc;

use crate::error::EvalError;
use crate::functions::{CallContext, EvalResult, Functions};
use crate::library::named_format;
use crate::library::opaque::{DECISION, GROUP_CHECK, Opaque, PATH_CHECK};
use crate::types::Type;
use crate::value::Value;

/// The type to declare the variable `authorizer` with.
pub const AUTHORIZER: Type = Type::Opaque("kubernetes.authorization.Authorizer");
/// The type to declare the variable `authorizer.requestResource` with.
pub const RESOURCE_CHECK: Type = Type::Opaque("kubernetes.authorization.ResourceCheck");

/// Decides authorization checks of expressions.
pub trait Authorizer: Send + Sync {
    /// Authorizes access for the request's user, or for `subject` if given. An authorizer that cannot decide without
    /// waiting returns [`EvalError::Interrupted`], which ends the evaluation; the caller waits and evaluates again.
    fn authorize(
        &self,
        subject: Option<&ServiceAccount>,
        attributes: &AccessAttributes,
    ) -> Result<Decision, EvalError>;
}

/// A service account to authorize instead of the request's user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccount {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Attributes of the access to authorize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessAttributes {
    /// A non-resource request.
    NonResource {
        /// The path.
        path: String,
        /// The HTTP verb, in lower case.
        verb: String,
    },
    /// A resource request.
    Resource {
        /// Resource attributes.
        resource: ResourceAttributes,
        /// The API verb.
        verb: String,
    },
}

/// Resource attributes named by the expression; the rest are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceAttributes {
    /// API group
    pub group: String,
    /// Resource, such as `pods`
    pub resource: String,
    /// Subresource, such as `status`
    pub subresource: String,
    /// Namespace
    pub namespace: String,
    /// Name of the object
    pub name: String,
    /// Field selector as text
    pub field_selector: String,
    /// Label selector as text
    pub label_selector: String,
}

/// An authorizer's decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Access is allowed.
    pub allowed: bool,
    /// Human-readable reason.
    pub reason: String,
    /// Evaluation error of the authorizer.
    pub error: Option<String>,
}

/// Value of the variable `authorizer`: the authorizer and its subject.
pub struct Authorization {
    authorizer: Arc<dyn Authorizer>,
    subject: Option<ServiceAccount>,
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorization").field("subject", &self.subject).finish_non_exhaustive()
    }
}

/// A non-resource check without its verb.
#[derive(Debug)]
pub struct PathCheck {
    authorization: Arc<Authorization>,
    path: String,
}

/// A resource check without its resource.
#[derive(Debug)]
pub struct GroupCheck {
    authorization: Arc<Authorization>,
    group: String,
}

/// A resource check without its verb.
#[derive(Debug)]
pub struct ResourceCheck {
    authorization: Arc<Authorization>,
    resource: ResourceAttributes,
}

/// Returns the value to bind `authorizer` to.
pub fn authorizer_value<'a>(authorizer: Arc<dyn Authorizer>) -> Value<'a> {
    Value::Opaque(Opaque::Authorizer(Arc::new(Authorization { authorizer, subject: None })))
}

/// Returns the value to bind `authorizer.requestResource` to: a check of the request's resource.
pub fn request_resource_value<'a>(
    authorizer: Arc<dyn Authorizer>,
    resource: ResourceAttributes,
) -> Value<'a> {
    let authorization = Arc::new(Authorization { authorizer, subject: None });
    Value::Opaque(Opaque::ResourceCheck(Arc::new(ResourceCheck { authorization, resource })))
}

pub(crate) fn declare(f: &mut Functions) {
    let text = || Type::String;
    f.member("path", "authorizer_path", [AUTHORIZER, text()], PATH_CHECK, path);
    f.member("group", "authorizer_group", [AUTHORIZER, text()], GROUP_CHECK, group);
    let account = [AUTHORIZER, text(), text()];
    f.member("serviceAccount", "authorizer_serviceaccount", account, AUTHORIZER, service_account);
    f.member("resource", "groupcheck_resource", [GROUP_CHECK, text()], RESOURCE_CHECK, resource);
    f.member(
        "subresource",
        "resourcecheck_subresource",
        [RESOURCE_CHECK, text()],
        RESOURCE_CHECK,
        |_, args| refine(args, |attributes, text| attributes.subresource = text),
    );
    f.member("namespace", "resourcecheck_namespace", [RESOURCE_CHECK, text()], RESOURCE_CHECK, |_, args| {
        refine(args, |attributes, text| attributes.namespace = text)
    });
    f.member("name", "resourcecheck_name", [RESOURCE_CHECK, text()], RESOURCE_CHECK, |_, args| {
        refine(args, |attributes, text| attributes.name = text)
    });
    f.member("check", "pathcheck_check", [PATH_CHECK, text()], DECISION, check);
    f.member("check", "resourcecheck_check", [RESOURCE_CHECK, text()], DECISION, check);
    f.member("allowed", "decision_allowed", [DECISION], Type::Bool, |_, args| {
        decision(args, |decision| Value::Bool(decision.allowed))
    });
    f.member("reason", "decision_reason", [DECISION], text(), |_, args| {
        decision(args, |decision| Value::string(&decision.reason))
    });
    f.member("errored", "decision_errored", [DECISION], Type::Bool, |_, args| {
        decision(args, |decision| Value::Bool(decision.error.is_some()))
    });
    f.member("error", "decision_error", [DECISION], text(), |_, args| {
        decision(args, |decision| Value::string(decision.error.as_deref().unwrap_or_default()))
    });
}

pub(crate) fn declare_selectors(f: &mut Functions) {
    let with_text = || [RESOURCE_CHECK, Type::String];
    f.member("fieldSelector", "authorizer_fieldselector", with_text(), RESOURCE_CHECK, |_, args| {
        refine(args, |attributes, text| attributes.field_selector = text)
    });
    f.member("labelSelector", "authorizer_labelselector", with_text(), RESOURCE_CHECK, |_, args| {
        refine(args, |attributes, text| attributes.label_selector = text)
    });
}

fn path<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::Opaque(Opaque::Authorizer(authorization)), Value::String(path)] = args else {
        return Err(EvalError::no_such_overload());
    };
    if path.trim().is_empty() {
        return Err(EvalError::failed("path must not be empty"));
    }
    let check = PathCheck { authorization: authorization.clone(), path: path.to_string() };
    Ok(Value::Opaque(Opaque::PathCheck(Arc::new(check))))
}

fn group<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::Opaque(Opaque::Authorizer(authorization)), Value::String(group)] = args else {
        return Err(EvalError::no_such_overload());
    };
    let check = GroupCheck { authorization: authorization.clone(), group: group.to_string() };
    Ok(Value::Opaque(Opaque::GroupCheck(Arc::new(check))))
}

fn service_account<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::Opaque(Opaque::Authorizer(authorization)), Value::String(namespace), Value::String(name)] =
        args
    else {
        return Err(EvalError::no_such_overload());
    };
    if !named_format::is_subdomain(name) {
        return Err(EvalError::failed("Invalid service account name"));
    }
    if !named_format::is_label(namespace) {
        return Err(EvalError::failed("Invalid service account namespace"));
    }
    let subject = Some(ServiceAccount { namespace: namespace.to_string(), name: name.to_string() });
    let authorization = Authorization { authorizer: authorization.authorizer.clone(), subject };
    Ok(Value::Opaque(Opaque::Authorizer(Arc::new(authorization))))
}

fn resource<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::Opaque(Opaque::GroupCheck(check)), Value::String(resource)] = args else {
        return Err(EvalError::no_such_overload());
    };
    if resource.trim().is_empty() {
        return Err(EvalError::failed("resource must not be empty"));
    }
    let attributes = ResourceAttributes {
        group: check.group.clone(),
        resource: resource.to_string(),
        ..Default::default()
    };
    Ok(resource_check(&check.authorization, attributes))
}

fn resource_check<'a>(authorization: &Arc<Authorization>, resource: ResourceAttributes) -> Value<'a> {
    let check = ResourceCheck { authorization: authorization.clone(), resource };
    Value::Opaque(Opaque::ResourceCheck(Arc::new(check)))
}

fn refine<'a>(args: &[Value<'a>], set: fn(&mut ResourceAttributes, String)) -> EvalResult<'a> {
    let [Value::Opaque(Opaque::ResourceCheck(check)), Value::String(text)] = args else {
        return Err(EvalError::no_such_overload());
    };
    let mut attributes = check.resource.clone();
    set(&mut attributes, text.to_string());
    Ok(resource_check(&check.authorization, attributes))
}

fn check<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let (authorization, attributes) = match args {
        [Value::Opaque(Opaque::PathCheck(check)), Value::String(verb)] => (
            &check.authorization,
            AccessAttributes::NonResource { path: check.path.clone(), verb: verb.to_string() },
        ),
        [Value::Opaque(Opaque::ResourceCheck(check)), Value::String(verb)] => {
            let resource = check.resource.clone();
            (&check.authorization, AccessAttributes::Resource { resource, verb: verb.to_string() })
        }
        _ => return Err(EvalError::no_such_overload()),
    };
    let decision = authorization.authorizer.authorize(authorization.subject.as_ref(), &attributes)?;
    Ok(Value::Opaque(Opaque::Decision(Arc::new(decision))))
}

fn decision<'a>(args: &[Value<'a>], read: fn(&Decision) -> Value<'a>) -> EvalResult<'a> {
    match args {
        [Value::Opaque(Opaque::Decision(decision))] => Ok(read(decision)),
        _ => Err(EvalError::no_such_overload()),
    }
}
