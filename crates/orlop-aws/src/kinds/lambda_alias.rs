//! lambda Alias, and statements of a function's policy.

use std::sync::LazyLock;

use async_trait::async_trait;
use serde_json::{Value, json};

use crate::{
    client::{Failure, LAMBDA, Result, Session, optional, path},
    fields::{Case, Difference, from_json, parse, to_json},
    kind::{
        Deletion, Descriptor, Kind, Object, Observed, Reference, Tags, at, differs, fields_annotation,
        recorded_fields,
    },
};

#[derive(Debug)]
pub(crate) struct Alias;

static DESCRIPTOR: Descriptor = Descriptor {
    service: &LAMBDA,
    kind: "Alias",
    plural: "aliases",
    spec: LazyLock::new(|| {
        parse(
            "description~
             functionEventInvokeConfig{destinationConfig{onFailure{destination} onSuccess{destination}} functionName^
                 maximumEventAgeInSeconds:i maximumRetryAttempts:i qualifier^}
             functionName functionRef@ functionVersion! name!=
             permissions~#[]{action eventSourceToken functionURLAuthType^>FunctionUrlAuthType principal principalOrgID
                 revisionID^ sourceARN sourceAccount statementID}
             provisionedConcurrencyConfig{functionName^ provisionedConcurrentExecutions:i qualifier^}
             routingConfig~{additionalVersionWeights~{}:n}",
        )
    }),
    status: LazyLock::new(|| parse("revisionID")),
    adoption: &[("name", "spec.name"), ("functionName", "spec.functionName")],
    identity: &["functionName"],
    references: &[Reference {
        field: "functionName",
        reference: "functionRef",
        target: ("lambda", "Function"),
        value: "spec.name",
        prefix: "",
        required: true,
        list: false,
    }],
    terminal: &[],
    late: &[],
    tags: Tags::None,
    resync: None,
    actions: &[
        "lambda:GetAlias",
        "lambda:CreateAlias",
        "lambda:UpdateAlias",
        "lambda:DeleteAlias",
        "lambda:GetFunctionEventInvokeConfig",
        "lambda:PutFunctionEventInvokeConfig",
        "lambda:DeleteFunctionEventInvokeConfig",
        "lambda:GetProvisionedConcurrencyConfig",
        "lambda:PutProvisionedConcurrencyConfig",
        "lambda:DeleteProvisionedConcurrencyConfig",
        "lambda:GetPolicy",
        "lambda:AddPermission",
        "lambda:RemovePermission",
    ],
    columns: &[],
};

/// Marks aliases whose provisioned concurrency was set, so that its removal is noticed.
const EXTRAS: &str = "lambda.services.k8s.aws/extras";
const PROVISIONED: &str = "provisionedConcurrencyConfig";

/// Refuses settings for another function or version than the object's own, which nothing would act on.
pub(super) fn validate_invoke_config(object: &Object, function: &str, qualifier: &str) -> Result<()> {
    for holder in ["functionEventInvokeConfig", PROVISIONED] {
        for (field, own) in [("functionName", function), ("qualifier", qualifier)] {
            let given = object.spec(&format!("{holder}.{field}"));
            if let Some(other) = given.filter(|given| *given != own) {
                let message =
                    format!("{holder}.{field} is {other}, but the object's own is {own}; leave it out");
                return Err(Failure::Terminal(message));
            }
        }
    }
    Ok(())
}

/// Reads the statements of a function's policy, and its revision. A function without a policy has none.
pub(crate) async fn statements(
    aws: &Session,
    function: &str,
    qualifier: Option<&str>,
) -> Result<(Vec<Value>, Option<String>)> {
    let address = path(&["2015-03-31", "functions", function, "policy"]);
    let query: Vec<_> = qualifier.map(|qualifier| ("Qualifier", qualifier)).into_iter().collect();
    let read = aws.rest_query(&LAMBDA, "GetPolicy", "GET", &address, &query, None).await;
    let Some(answer) = optional(read, &[])? else { return Ok((Vec::new(), None)) };
    let document = answer["Policy"].as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let all = document.map(|document| document["Statement"].as_array().cloned().unwrap_or_default());
    Ok((all.unwrap_or_default(), answer["RevisionId"].as_str().map(str::to_owned)))
}

/// Returns a statement in the form of a permission, so that it can be compared with what is wanted.
pub(crate) fn statement_of(statement: &Value) -> Value {
    let first = |value: &Value| match value {
        Value::Array(items) => items.first().cloned().unwrap_or_default(),
        other => other.clone(),
    };
    let principal = match &statement["Principal"] {
        Value::Object(kinds) => first(kinds.values().next().unwrap_or(&Value::Null)),
        other => other.clone(),
    };
    // An account comes back as its root.
    let principal = match principal.as_str() {
        Some(arn) if arn.ends_with(":root") => json!(arn.split(':').nth(4)),
        _ => principal,
    };
    let mut out = json!({"statementID": statement["Sid"], "action": first(&statement["Action"]), "principal": principal});
    for condition in statement["Condition"].as_object().into_iter().flatten() {
        for (key, value) in condition.1.as_object().into_iter().flatten() {
            let field = match key.to_lowercase().as_str() {
                "aws:sourcearn" => "sourceARN",
                "aws:sourceaccount" => "sourceAccount",
                "aws:principalorgid" => "principalOrgID",
                "lambda:eventsourcetoken" => "eventSourceToken",
                "lambda:functionurlauthtype" => "functionURLAuthType",
                _ => continue,
            };
            out[field] = first(value);
        }
    }
    out
}

fn alias(object: &Object) -> String {
    path(&["2015-03-31", "functions", object.need("functionName"), "aliases", object.need("name")])
}

/// Addresses of what is set beside the alias, with its qualifier as a query.
async fn beside(
    aws: &Session,
    object: &Object,
    operation: &'static str,
    method: &'static str,
    body: Option<Value>,
) -> Result<Value> {
    let function = object.need("functionName");
    let address = match operation.contains("Provisioned") {
        true => path(&["2019-09-30", "functions", function, "provisioned-concurrency"]),
        false => path(&["2019-09-25", "functions", function, "event-invoke-config"]),
    };
    let query = [("Qualifier", object.need("name"))];
    aws.rest_query(&LAMBDA, operation, method, &address, &query, body).await
}

#[async_trait]
impl Kind for Alias {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn annotations(&self, object: &Object) -> Vec<(&'static str, String)> {
        fields_annotation(EXTRAS, &recorded_fields(object, EXTRAS, &[PROVISIONED]))
    }

    fn validate(&self, object: &Object) -> Result<()> {
        validate_invoke_config(object, object.need("functionName"), object.need("name"))?;
        let permissions = object.spec["permissions"].as_array().into_iter().flatten();
        for permission in permissions {
            if permission["statementID"].as_str().is_none_or(str::is_empty) {
                return Err(Failure::Terminal(
                    "permission is missing required field 'statementID'".to_owned(),
                ));
            }
        }
        Ok(())
    }

    async fn read(&self, aws: &Session, object: &Object) -> Result<Option<Observed>> {
        let Some(answer) = optional(aws.rest(&LAMBDA, "GetAlias", "GET", &alias(object), None).await, &[])?
        else {
            return Ok(None);
        };
        let mut spec = from_json(&DESCRIPTOR.spec, &answer, Case::Pascal);
        spec["functionName"] = json!(object.need("functionName"));
        let absent = ["ProvisionedConcurrencyConfigNotFoundException", "EventInvokeConfigNotFoundException"];
        let invoke = beside(aws, object, "GetFunctionEventInvokeConfig", "GET", None).await;
        if let Some(answer) = optional(invoke, &absent)? {
            let own: Vec<_> = DESCRIPTOR
                .spec
                .iter()
                .filter(|known| known.name == "functionEventInvokeConfig")
                .cloned()
                .collect();
            let wrapped = json!({"FunctionEventInvokeConfig": answer});
            spec["functionEventInvokeConfig"] =
                from_json(&own, &wrapped, Case::Pascal)["functionEventInvokeConfig"].clone();
        }
        let mut pending = None;
        if !recorded_fields(object, EXTRAS, &[PROVISIONED]).is_empty() {
            let read = beside(aws, object, "GetProvisionedConcurrencyConfig", "GET", None).await;
            if let Some(answer) = optional(read, &absent)? {
                let number = &answer["RequestedProvisionedConcurrentExecutions"];
                spec["provisionedConcurrencyConfig"] = json!({"provisionedConcurrentExecutions": number});
                if answer["Status"] == "IN_PROGRESS" {
                    let five = std::time::Duration::from_secs(5);
                    pending = Some(("provisioned concurrency is being set up".to_owned(), five));
                }
            }
        }
        let (all, _) = statements(aws, object.need("functionName"), Some(object.need("name"))).await?;
        spec["permissions"] = all.iter().map(statement_of).collect();
        let status = from_json(&DESCRIPTOR.status, &answer, Case::Pascal);
        let arn = answer["AliasArn"].as_str().map(str::to_owned);
        Ok(Some(Observed { spec, status, arn, pending, failed: None }))
    }

    async fn create(&self, aws: &Session, object: &Object) -> Result<Value> {
        let body = alias_body(object);
        let address = path(&["2015-03-31", "functions", object.need("functionName"), "aliases"]);
        aws.rest(&LAMBDA, "CreateAlias", "POST", &address, Some(body)).await?;
        Ok(json!({}))
    }

    fn refine(&self, object: &Object, observed: &Observed, changed: &mut Vec<Difference>) {
        for field in ["functionEventInvokeConfig", "provisionedConcurrencyConfig"] {
            if object.spec.get(field).is_none() && at(&observed.spec, field).is_some() {
                changed.push(Difference { field: field.to_owned(), path: field.to_owned() });
            }
        }
    }

    async fn update(
        &self,
        aws: &Session,
        object: &Object,
        observed: &Observed,
        changed: &[Difference],
    ) -> Result<()> {
        let (function, name) = (object.need("functionName"), object.need("name"));
        let wire = to_json(&DESCRIPTOR.spec, &object.spec, Case::Pascal);
        if differs(changed, "permissions") {
            let empty = Vec::new();
            let desired = object.spec["permissions"].as_array().unwrap_or(&empty);
            let seen = observed.spec["permissions"].as_array().unwrap_or(&empty);
            let field: Vec<_> =
                DESCRIPTOR.spec.iter().filter(|known| known.name == "permissions").cloned().collect();
            let same = |one: &Value, other: &Value| {
                crate::fields::compare(
                    &field,
                    &json!({"permissions": [one]}),
                    &json!({"permissions": [other]}),
                )
                .is_empty()
            };
            let query = [("Qualifier", name)];
            let policy = path(&["2015-03-31", "functions", function, "policy"]);
            for old in seen.iter().filter(|old| !desired.iter().any(|new| same(new, old))) {
                let id = old["statementID"].as_str().unwrap_or_default();
                let address = format!("{policy}/{}", crate::client::encode(id));
                let removed =
                    aws.rest_query(&LAMBDA, "RemovePermission", "DELETE", &address, &query, None).await;
                optional(removed, &[])?;
            }
            let added = wire["Permissions"].as_array().into_iter().flatten().zip(desired);
            for (body, new) in added.filter(|(_, new)| !seen.iter().any(|old| same(new, old))) {
                tracing::debug!(statement = %new["statementID"], "adding a permission");
                aws.rest_query(&LAMBDA, "AddPermission", "POST", &policy, &query, Some(body.clone())).await?;
            }
        }
        if differs(changed, "functionEventInvokeConfig") {
            match wire.get("FunctionEventInvokeConfig") {
                Some(body) => {
                    beside(aws, object, "PutFunctionEventInvokeConfig", "PUT", Some(body.clone())).await?
                }
                None => beside(aws, object, "DeleteFunctionEventInvokeConfig", "DELETE", None).await?,
            };
        }
        if differs(changed, "provisionedConcurrencyConfig") {
            match wire.get("ProvisionedConcurrencyConfig") {
                Some(body) => {
                    beside(aws, object, "PutProvisionedConcurrencyConfig", "PUT", Some(body.clone())).await?
                }
                None => beside(aws, object, "DeleteProvisionedConcurrencyConfig", "DELETE", None).await?,
            };
        }
        if ["description", "functionVersion", "routingConfig"].iter().any(|field| differs(changed, field)) {
            let mut body = alias_body(object);
            if body.get("RoutingConfig").is_none() {
                body["RoutingConfig"] = json!({"AdditionalVersionWeights": {}});
            }
            if body.get("Description").is_none() {
                body["Description"] = json!("");
            }
            aws.rest(&LAMBDA, "UpdateAlias", "PUT", &alias(object), Some(body)).await?;
        }
        Ok(())
    }

    async fn delete(&self, aws: &Session, object: &Object, observed: &Observed) -> Result<Deletion> {
        // What was set beside it would be there again with the next alias of the name.
        if at(&observed.spec, "functionEventInvokeConfig").is_some() {
            optional(beside(aws, object, "DeleteFunctionEventInvokeConfig", "DELETE", None).await, &[])?;
        }
        if at(&observed.spec, PROVISIONED).is_some() {
            optional(beside(aws, object, "DeleteProvisionedConcurrencyConfig", "DELETE", None).await, &[])?;
        }
        optional(aws.rest(&LAMBDA, "DeleteAlias", "DELETE", &alias(object), None).await, &[])?;
        Ok(Deletion::Gone)
    }
}

fn alias_body(object: &Object) -> Value {
    let fields = parse("description functionVersion name routingConfig{additionalVersionWeights{}:n}");
    to_json(&fields, &object.spec, Case::Pascal)
}
