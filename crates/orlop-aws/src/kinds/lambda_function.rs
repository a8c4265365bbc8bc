//! lambda Function.

use std::{sync::LazyLock, time::Duration};

use async_trait::async_trait;
use serde_json::{Value, json};

use crate::{
    client::{Failure, LAMBDA, Result, Session, optional, path, sha256_hex},
    fields::{Case, Difference, from_json, parse, to_json},
    kind::{
        ARN, Deletion, Descriptor, Kind, Object, Observed, Reference, Tags, at, differs, fields_annotation,
        recorded_fields, tag_changes, tag_map,
    },
};

#[derive(Debug)]
pub(crate) struct Function;

static DESCRIPTOR: Descriptor = Descriptor {
    service: &LAMBDA,
    kind: "Function",
    plural: "functions",
    spec: LazyLock::new(|| {
        parse(
            "architectures[] code!^{imageURI s3Bucket s3BucketRef@ s3Key s3ObjectVersion sha256 zipFile:x}
             codeSigningConfigARN~ codeSigningConfigRef@ deadLetterConfig~{targetARN~} description~
             durableConfig{executionTimeout:i retentionPeriodInDays:i} environment~{variables~{}}
             ephemeralStorage~{size:i~512} fileSystemConfigs~[]{arn localMountPath}
             functionEventInvokeConfig{destinationConfig{onFailure{destination} onSuccess{destination}} functionName^
                 maximumEventAgeInSeconds:i maximumRetryAttempts:i qualifier^}
             handler imageConfig{command[] entryPoint[] workingDirectory} kmsKeyARN~>KMSKeyArn kmsKeyRef@ layers~[]
             loggingConfig{applicationLogLevel logFormat logGroup systemLogLevel} memorySize:i~128 name! packageType
             publish^:b reservedConcurrentExecutions:i role roleRef@ runtime snapStart{applyOn} tags~{}
             tenancyConfig={tenantIsolationMode} timeout:i~3 tracingConfig{mode}
             vpcConfig~{securityGroupIDs~[]>SecurityGroupIds securityGroupRefs[]@ subnetIDs~[]>SubnetIds subnetRefs[]@}",
        )
    }),
    status: LazyLock::new(|| {
        parse(
            "codeSHA256 codeSize:i
             imageConfigResponse{error{errorCode message} imageConfig{command[] entryPoint[] workingDirectory}}
             lastModified lastUpdateStatus lastUpdateStatusReason lastUpdateStatusReasonCode
             layerStatuses[]>Layers{arn codeSize:i signingJobARN signingProfileVersionARN} masterARN revisionID
             signingJobARN signingProfileVersionARN state stateReason stateReasonCode version",
        )
    }),
    adoption: &[("name", "spec.name")],
    identity: &["name"],
    references: &[
        Reference {
            field: "role",
            reference: "roleRef",
            target: ("iam", "Role"),
            value: ARN,
            prefix: "",
            required: true,
            list: false,
        },
        Reference::optional("code.s3Bucket", "code.s3BucketRef", ("s3", "Bucket"), "spec.name"),
        Reference::optional("kmsKeyARN", "kmsKeyRef", ("kms", "Key"), ARN),
        Reference::optional(
            "codeSigningConfigARN",
            "codeSigningConfigRef",
            ("lambda", "CodeSigningConfig"),
            ARN,
        ),
        Reference::optional_list(
            "vpcConfig.securityGroupIDs",
            "vpcConfig.securityGroupRefs",
            ("ec2", "SecurityGroup"),
            "status.id",
        ),
        Reference::optional_list(
            "vpcConfig.subnetIDs",
            "vpcConfig.subnetRefs",
            ("ec2", "Subnet"),
            "status.subnetID",
        ),
    ],
    terminal: &[],
    late: &[],
    tags: Tags::Map("tags"),
    resync: None,
    actions: &[
        "lambda:GetFunction",
        "lambda:CreateFunction",
        "lambda:UpdateFunctionCode",
        "lambda:UpdateFunctionConfiguration",
        "lambda:DeleteFunction",
        "lambda:GetFunctionConcurrency",
        "lambda:PutFunctionConcurrency",
        "lambda:DeleteFunctionConcurrency",
        "lambda:GetFunctionEventInvokeConfig",
        "lambda:PutFunctionEventInvokeConfig",
        "lambda:DeleteFunctionEventInvokeConfig",
        "lambda:GetFunctionCodeSigningConfig",
        "lambda:PutFunctionCodeSigningConfig",
        "lambda:DeleteFunctionCodeSigningConfig",
        "lambda:TagResource",
        "lambda:UntagResource",
        "lambda:GetLayerVersion",
        "iam:PassRole",
        "s3:GetObject",
        "s3:GetObjectVersion",
        "ecr:BatchGetImage",
        "ecr:GetDownloadUrlForLayer",
        "ec2:DescribeSubnets",
        "ec2:DescribeSecurityGroups",
        "ec2:DescribeVpcs",
    ],
    columns: &[("STATE", "string", ".status.state")],
};

/// Hash of where the code comes from, which AWS does not report.
const CODE: &str = "lambda.services.k8s.aws/code";
/// Marks functions whose concurrency or invoke configuration was set, so that their removal is noticed.
const EXTRAS: &str = "lambda.services.k8s.aws/extras";

const FUNCTIONS: [&str; 2] = ["2015-03-31", "functions"];

fn function(name: &str, more: &[&str]) -> String {
    let mut segments = FUNCTIONS.to_vec();
    segments.push(name);
    segments.extend(more);
    path(&segments)
}

fn hash(text: &str) -> String {
    sha256_hex(text.as_bytes())[..16].to_owned()
}

/// Returns the hash of the code's location, without `sha256`, which is an assertion about it.
fn code_hash(object: &Object) -> String {
    let mut code = object.spec["code"].clone();
    if let Some(fields) = code.as_object_mut() {
        fields.remove("sha256");
        fields.retain(|name, _| !name.ends_with("Ref"));
    }
    hash(&code.to_string())
}

/// Separate settings that the object has or had.
fn extras(object: &Object) -> Vec<&'static str> {
    let fields = ["reservedConcurrentExecutions", "functionEventInvokeConfig", "codeSigningConfigARN"];
    recorded_fields(object, EXTRAS, &fields)
}

#[async_trait]
impl Kind for Function {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn validate(&self, object: &Object) -> Result<()> {
        if object.spec("packageType") == Some("Image") && object.spec("codeSigningConfigARN").is_some() {
            return Err(Failure::Terminal(
                "cannot set function code signing config when package type is Image".to_owned(),
            ));
        }
        super::lambda_alias::validate_invoke_config(object, object.need("name"), "$LATEST")
    }

    async fn read(&self, aws: &Session, object: &Object) -> Result<Option<Observed>> {
        let name = object.need("name");
        let read = aws.rest(&LAMBDA, "GetFunction", "GET", &function(name, &[]), None).await;
        let Some(answer) = optional(read, &[])? else { return Ok(None) };
        let configuration = &answer["Configuration"];
        let mut spec = from_json(&DESCRIPTOR.spec, configuration, Case::Pascal);
        let status = from_json(&DESCRIPTOR.status, configuration, Case::Pascal);
        spec["name"] = json!(name);
        spec["tags"] = answer["Tags"].clone();
        spec["layers"] = configuration["Layers"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|layer| layer["Arn"].clone())
            .collect();
        if let Some(image) = answer["Code"]["ImageUri"].as_str() {
            spec["code"] = json!({"imageURI": image});
        }
        if let Some(config) = configuration["ImageConfigResponse"].get("ImageConfig") {
            let fields = parse("command[] entryPoint[] workingDirectory");
            spec["imageConfig"] = from_json(&fields, config, Case::Pascal);
        }
        for field in extras(object) {
            let (operation, address) = match field {
                "reservedConcurrentExecutions" => {
                    ("GetFunctionConcurrency", path(&["2019-09-30", "functions", name, "concurrency"]))
                }
                "functionEventInvokeConfig" => (
                    "GetFunctionEventInvokeConfig",
                    path(&["2019-09-25", "functions", name, "event-invoke-config"]),
                ),
                _ => (
                    "GetFunctionCodeSigningConfig",
                    path(&["2020-06-30", "functions", name, "code-signing-config"]),
                ),
            };
            let answer = optional(aws.rest(&LAMBDA, operation, "GET", &address, None).await, &[])?;
            let Some(answer) = answer else { continue };
            match field {
                "reservedConcurrentExecutions" => {
                    spec[field] = answer["ReservedConcurrentExecutions"].clone();
                }
                "codeSigningConfigARN" => {
                    // Empty for a function without one.
                    let arn = answer["CodeSigningConfigArn"].as_str().filter(|arn| !arn.is_empty());
                    spec[field] = json!(arn);
                }
                _ => {
                    let own: Vec<_> =
                        DESCRIPTOR.spec.iter().filter(|known| known.name == field).cloned().collect();
                    let wrapped = json!({"FunctionEventInvokeConfig": answer});
                    spec[field] = from_json(&own, &wrapped, Case::Pascal)[field].clone();
                }
            }
        }
        let text = |field: &str| configuration[field].as_str().unwrap_or_default();
        let five = Duration::from_secs(5);
        let (state, update) = (text("State"), text("LastUpdateStatus"));
        let pending = match (state, update) {
            ("Pending" | "Deleting", _) => {
                Some((format!("function in '{state}' state, cannot be modified or deleted"), five))
            }
            (_, "InProgress") => Some(("an update of the function is in progress".to_owned(), five)),
            _ => None,
        };
        let failed = match (state, update) {
            ("Failed", _) => Some(format!("function failed: {}", text("StateReason"))),
            (_, "Failed") => Some(format!("the last update failed: {}", text("LastUpdateStatusReason"))),
            _ => None,
        };
        let arn = configuration["FunctionArn"].as_str().map(str::to_owned);
        Ok(Some(Observed { spec, status, arn, pending, failed }))
    }

    async fn create(&self, aws: &Session, object: &Object) -> Result<Value> {
        let mut body = to_json(&DESCRIPTOR.spec, &object.spec, Case::Pascal);
        if let Some(fields) = body.as_object_mut() {
            for field in ["ReservedConcurrentExecutions", "FunctionEventInvokeConfig", "Name"] {
                fields.remove(field);
            }
            if let Some(code) = fields.get_mut("Code").and_then(Value::as_object_mut) {
                code.remove("Sha256");
            }
        }
        body["FunctionName"] = json!(object.need("name"));
        aws.rest(&LAMBDA, "CreateFunction", "POST", &path(&FUNCTIONS), Some(body)).await?;
        Ok(json!({}))
    }

    fn annotations(&self, object: &Object) -> Vec<(&'static str, String)> {
        let mut all = vec![(CODE, code_hash(object))];
        all.extend(fields_annotation(EXTRAS, &extras(object)));
        all
    }

    fn refine(&self, object: &Object, observed: &Observed, changed: &mut Vec<Difference>) {
        let mut add = |field: &str, path: &str| {
            changed.push(Difference { field: field.to_owned(), path: path.to_owned() });
        };
        if let Some(image) = object.spec("code.imageURI")
            && at(&observed.spec, "code.imageURI").and_then(Value::as_str) != Some(image)
        {
            add("code", "code.imageURI");
        }
        if let Some(hash) = object.spec("code.sha256")
            && observed.status["codeSHA256"].as_str().is_some_and(|seen| seen != hash)
        {
            add("code", "code.sha256");
        }
        let known = object.annotations.get(CODE).and_then(Value::as_str);
        if known.is_some_and(|known| known != code_hash(object)) {
            add("code", "code");
        }
        for field in extras(object) {
            if object.spec.get(field).is_none() && at(&observed.spec, field).is_some() {
                add(field, field);
            }
        }
        // A missing package type is Zip, and code has its own update.
        changed
            .retain(|difference| difference.field != "packageType" || object.spec("packageType").is_some());
    }

    async fn update(
        &self,
        aws: &Session,
        object: &Object,
        observed: &Observed,
        changed: &[Difference],
    ) -> Result<()> {
        let name = object.need("name");
        if let Some((message, after)) = &observed.pending {
            return Err(Failure::Wait { after: *after, message: message.clone() });
        }
        if differs(changed, "tenancyConfig") {
            return Err(Failure::Terminal(
                "tenancy config cannot be modified after function creation".to_owned(),
            ));
        }
        if differs(changed, "tags") {
            let arn = observed.arn.as_deref().unwrap_or_default();
            let address = path(&["2017-03-31", "tags", arn]);
            let (add, remove) = tag_changes(object, observed);
            if !remove.is_empty() {
                let keys: Vec<_> = remove.iter().map(|key| ("tagKeys", key.as_str())).collect();
                aws.rest_query(&LAMBDA, "UntagResource", "DELETE", &address, &keys, None).await?;
            }
            if !add.is_empty() {
                aws.rest(&LAMBDA, "TagResource", "POST", &address, Some(json!({"Tags": tag_map(&add)})))
                    .await?;
            }
        }
        if differs(changed, "reservedConcurrentExecutions") {
            let address = path(&["2017-10-31", "functions", name, "concurrency"]);
            match object.spec.get("reservedConcurrentExecutions") {
                Some(number) => {
                    let body = json!({"ReservedConcurrentExecutions": number});
                    aws.rest(&LAMBDA, "PutFunctionConcurrency", "PUT", &address, Some(body)).await?
                }
                None => aws.rest(&LAMBDA, "DeleteFunctionConcurrency", "DELETE", &address, None).await?,
            };
        }
        if differs(changed, "functionEventInvokeConfig") {
            let address = path(&["2019-09-25", "functions", name, "event-invoke-config"]);
            let wire = to_json(&DESCRIPTOR.spec, &object.spec, Case::Pascal);
            match wire.get("FunctionEventInvokeConfig") {
                Some(body) => {
                    aws.rest(&LAMBDA, "PutFunctionEventInvokeConfig", "PUT", &address, Some(body.clone()))
                        .await?
                }
                None => {
                    aws.rest(&LAMBDA, "DeleteFunctionEventInvokeConfig", "DELETE", &address, None).await?
                }
            };
        }
        if differs(changed, "codeSigningConfigARN") {
            let address = path(&["2020-06-30", "functions", name, "code-signing-config"]);
            match object.spec("codeSigningConfigARN") {
                Some(arn) => {
                    let body = json!({"CodeSigningConfigArn": arn});
                    aws.rest(&LAMBDA, "PutFunctionCodeSigningConfig", "PUT", &address, Some(body)).await?
                }
                None => {
                    aws.rest(&LAMBDA, "DeleteFunctionCodeSigningConfig", "DELETE", &address, None).await?
                }
            };
        }
        let code = differs(changed, "code") || differs(changed, "architectures");
        // The configuration first: it can be read back, so that the next pass has the code alone to do. Code that was
        // not noted as done would be done again and again.
        if update_configuration(aws, object, changed).await? {
            return match code {
                true => Err(Failure::wait(2, "configuration is being updated; code follows")),
                false => Ok(()),
            };
        }
        if code {
            update_code(aws, object).await?;
        }
        Ok(())
    }

    fn translate(&self, failure: Failure) -> Failure {
        let text = failure.to_string();
        let after = match failure.code() {
            Some("ResourceConflictException") => 3,
            // A new role takes some seconds to be known to Lambda.
            Some("InvalidParameterValueException") if text.contains("cannot be assumed by Lambda") => 5,
            Some("InvalidParameterValueException") if text.contains("Source image") => 60,
            _ => return failure,
        };
        Failure::wait(after, text)
    }

    async fn delete(&self, aws: &Session, object: &Object, _: &Observed) -> Result<Deletion> {
        let address = function(object.need("name"), &[]);
        optional(aws.rest(&LAMBDA, "DeleteFunction", "DELETE", &address, None).await, &[])?;
        Ok(Deletion::Pending(Duration::from_millis(200)))
    }
}

async fn update_code(aws: &Session, object: &Object) -> Result<()> {
    let mut body = to_json(&DESCRIPTOR.spec, &object.spec, Case::Pascal)["Code"].clone();
    if let Some(fields) = body.as_object_mut() {
        fields.remove("Sha256");
    }
    if let Some(architectures) = object.spec.get("architectures") {
        body["Architectures"] = architectures.clone();
    }
    if object.spec["publish"].as_bool() == Some(true) {
        body["Publish"] = json!(true);
    }
    let address = function(object.need("name"), &["code"]);
    aws.rest(&LAMBDA, "UpdateFunctionCode", "PUT", &address, Some(body)).await?;
    Ok(())
}

/// Updates the configuration, if it differs. True if it did.
async fn update_configuration(aws: &Session, object: &Object, changed: &[Difference]) -> Result<bool> {
    let separate = [
        "tags",
        "reservedConcurrentExecutions",
        "functionEventInvokeConfig",
        "codeSigningConfigARN",
        "code",
        "architectures",
        "packageType",
        "name",
        "publish",
        "tenancyConfig",
    ];
    if changed.iter().all(|difference| separate.contains(&difference.field.as_str())) {
        return Ok(false);
    }
    let wire = to_json(&DESCRIPTOR.spec, &object.spec, Case::Pascal);
    let mut body = json!({});
    for field in DESCRIPTOR.spec.iter().filter(|field| !separate.contains(&field.name.as_str())) {
        let name = field.wire_name(Case::Pascal);
        let value = wire.get(&name).cloned().or_else(|| {
            // A field that went is sent as what absence means.
            differs(changed, &field.name).then(|| match field.name.as_str() {
                "timeout" => json!(3),
                "memorySize" => json!(128),
                "ephemeralStorage" => json!({"Size": 512}),
                "environment" => json!({"Variables": {}}),
                "vpcConfig" => json!({"SubnetIds": [], "SecurityGroupIds": []}),
                "deadLetterConfig" => json!({"TargetArn": ""}),
                "layers" | "fileSystemConfigs" => json!([]),
                _ => json!(""),
            })
        });
        if let Some(value) = value {
            body[name] = value;
        }
    }
    let address = function(object.need("name"), &["configuration"]);
    aws.rest(&LAMBDA, "UpdateFunctionConfiguration", "PUT", &address, Some(body)).await?;
    Ok(true)
}
