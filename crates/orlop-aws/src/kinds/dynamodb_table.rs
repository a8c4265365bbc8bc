//! dynamodb Table.

use std::{sync::LazyLock, time::Duration};

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::dynamodb_replicas as replicas;
use crate::{
    client::{DYNAMODB, Failure, Result, Session, optional},
    fields::{Case, Difference, from_json, parse, to_json},
    kind::{
        ARN, Deletion, Descriptor, Kind, Object, Observed, Reference, Tags, aws_tags, differs,
        fields_annotation, recorded_fields, tag_changes, tags_of,
    },
    policy,
};

#[derive(Debug)]
pub(crate) struct Table;

static DESCRIPTOR: Descriptor = Descriptor {
    service: &DYNAMODB,
    kind: "Table",
    plural: "tables",
    spec: LazyLock::new(|| {
        parse(
            "attributeDefinitions!#[]{attributeName attributeType} billingMode~PROVISIONED
             continuousBackups~{pointInTimeRecoveryEnabled:b~} contributorInsights~DISABLE
             deletionProtectionEnabled:b~
             globalSecondaryIndexes~#[]{indexName keySchema#[]{attributeName keyType}
                 onDemandThroughput{maxReadRequestUnits:i maxWriteRequestUnits:i}
                 projection{nonKeyAttributes[] projectionType}
                 provisionedThroughput{readCapacityUnits:i writeCapacityUnits:i}}
             keySchema!=#[]{attributeName keyType}
             localSecondaryIndexes=#[]{indexName keySchema#[]{attributeName keyType}
                 projection{nonKeyAttributes[] projectionType}}
             onDemandThroughput{maxReadRequestUnits:i maxWriteRequestUnits:i}
             provisionedThroughput{readCapacityUnits:i writeCapacityUnits:i} resourcePolicy~
             sseSpecification>SSESpecification{enabled:b kmsMasterKeyID>KMSMasterKeyId kmsMasterKeyRef@
                 sseType>SSEType}
             streamSpecification~{streamEnabled:b~ streamViewType} tableClass~STANDARD tableName!
             tableReplicas~#[]{globalSecondaryIndexes#[]{indexName provisionedThroughputOverride{readCapacityUnits:i}}
                 kmsMasterKeyID>KMSMasterKeyId provisionedThroughputOverride{readCapacityUnits:i} regionName tableClassOverride}
             tags~[]{key value} timeToLive~{attributeName enabled:b~}",
        )
    }),
    status: LazyLock::new(|| {
        parse(
            "archivalSummary{archivalBackupARN archivalDateTime:t archivalReason} creationDateTime:t
             globalSecondaryIndexesDescriptions[]>GlobalSecondaryIndexes{backfilling:b indexARN indexName
                 indexSizeBytes:i indexStatus itemCount:i keySchema[]{attributeName keyType}
                 onDemandThroughput{maxReadRequestUnits:i maxWriteRequestUnits:i}
                 projection{nonKeyAttributes[] projectionType}
                 provisionedThroughput{lastDecreaseDateTime:t lastIncreaseDateTime:t numberOfDecreasesToday:i
                     readCapacityUnits:i writeCapacityUnits:i}}
             globalTableVersion itemCount:i latestStreamARN latestStreamLabel
             replicas[]{globalSecondaryIndexes[]{indexName provisionedThroughputOverride{readCapacityUnits:i}}
                 kmsMasterKeyID>KMSMasterKeyId provisionedThroughputOverride{readCapacityUnits:i} regionName
                 replicaInaccessibleDateTime:t replicaStatus replicaStatusDescription replicaStatusPercentProgress
                 replicaTableClassSummary{lastUpdateDateTime:t tableClass}}
             restoreSummary{restoreDateTime:t restoreInProgress:b sourceBackupARN sourceTableARN} tableID
             tableSizeBytes:i tableStatus",
        )
    }),
    adoption: &[("tableName", "spec.tableName")],
    identity: &["tableName"],
    references: &[Reference::optional(
        "sseSpecification.kmsMasterKeyID",
        "sseSpecification.kmsMasterKeyRef",
        ("kms", "Key"),
        ARN,
    )],
    terminal: &["InvalidParameter", "ValidationException"],
    late: &[],
    tags: Tags::List("tags"),
    resync: None,
    actions: &[
        "dynamodb:CreateTable",
        "dynamodb:DescribeTable",
        "dynamodb:UpdateTable",
        "dynamodb:DeleteTable",
        "dynamodb:TagResource",
        "dynamodb:UntagResource",
        "dynamodb:ListTagsOfResource",
        "dynamodb:DescribeTimeToLive",
        "dynamodb:UpdateTimeToLive",
        "dynamodb:DescribeContinuousBackups",
        "dynamodb:UpdateContinuousBackups",
        "dynamodb:DescribeContributorInsights",
        "dynamodb:UpdateContributorInsights",
        "dynamodb:CreateTableReplica",
        "dynamodb:DeleteTableReplica",
        "dynamodb:GetResourcePolicy",
        "dynamodb:PutResourcePolicy",
        "dynamodb:DeleteResourcePolicy",
        "kms:DescribeKey",
        "kms:CreateGrant",
    ],
    columns: &[("CLASS", "string", ".spec.tableClass"), ("STATUS", "string", ".status.tableStatus")],
};

const UPDATING: Duration = Duration::from_secs(10);

async fn call(aws: &Session, operation: &'static str, body: Value) -> Result<Value> {
    aws.json(&DYNAMODB, operation, body).await
}

/// True if AWS' ARN of a key is the key that was asked for: by its ARN or id. An alias does not identify the key.
fn is_key(desired: Option<&str>, seen: Option<&str>) -> bool {
    match (desired, seen) {
        (Some(desired), _) if desired.contains("alias/") => true,
        (Some(desired), Some(seen)) => seen == desired || seen.ends_with(&format!(":key/{desired}")),
        (None, _) => true,
        (Some(_), None) => false,
    }
}

/// Drops what AWS reports as zero or as its default, so that specs read back as they were written.
fn normalize(spec: &mut Value) {
    let on_demand = spec["billingMode"] == "PAY_PER_REQUEST";
    let drop_zero = |holder: &mut Value| {
        let zero = holder["provisionedThroughput"]["readCapacityUnits"].as_i64() == Some(0);
        if let Some(fields) = holder.as_object_mut().filter(|_| on_demand || zero) {
            fields.remove("provisionedThroughput");
        }
    };
    drop_zero(spec);
    for index in spec["globalSecondaryIndexes"].as_array_mut().into_iter().flatten() {
        drop_zero(index);
    }
}

#[async_trait]
impl Kind for Table {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn validate(&self, object: &Object) -> Result<()> {
        replicas::validate(object)
    }

    async fn read(&self, aws: &Session, object: &Object) -> Result<Option<Observed>> {
        let name = object.need("tableName");
        let named = json!({"TableName": name});
        let Some(answer) = optional(call(aws, "DescribeTable", named.clone()).await, &[])? else {
            return Ok(None);
        };
        let table = &answer["Table"];
        let mut spec = from_json(&DESCRIPTOR.spec, table, Case::Pascal);
        let status = from_json(&DESCRIPTOR.status, table, Case::Pascal);
        let arn = table["TableArn"].as_str().unwrap_or_default().to_owned();
        spec["billingMode"] =
            table["BillingModeSummary"]["BillingMode"].as_str().unwrap_or("PROVISIONED").into();
        if let Some(class) = table["TableClassSummary"]["TableClass"].as_str() {
            spec["tableClass"] = class.into();
        }
        if let Some(encryption) = table.get("SSEDescription").filter(|sse| !sse.is_null()) {
            let enabled = encryption["Status"] == "ENABLED" || encryption["Status"] == "UPDATING";
            spec["sseSpecification"] = json!({"enabled": enabled, "sseType": encryption["SSEType"],
                "kmsMasterKeyID": encryption["KMSMasterKeyArn"]});
        }
        normalize(&mut spec);
        let state = table["TableStatus"].as_str().unwrap_or_default();
        spec["tableReplicas"] = replicas::observed(aws, table);
        let mut pending = match state {
            "ACTIVE" | "ARCHIVED" => None,
            "CREATING" => Some(("table is currently being created".to_owned(), Duration::from_secs(5))),
            other => Some((format!("table in '{other}' state, cannot be modified or deleted"), UPDATING)),
        };
        if pending.is_none() {
            let indexes = table["GlobalSecondaryIndexes"].as_array().into_iter().flatten();
            let busy = indexes.into_iter().find(|index| index["IndexStatus"] != "ACTIVE");
            pending = busy
                .map(|index| (format!("index {} is {}", index["IndexName"], index["IndexStatus"]), UPDATING));
            pending = pending.or_else(|| replicas::busy(table).map(|message| (message, UPDATING)));
        }
        if state == "DELETING" || state == "CREATING" {
            return Ok(Some(Observed { spec, status, arn: Some(arn), pending, failed: None }));
        }
        let mut tags = Vec::new();
        let mut next = Value::Null;
        for _ in 0..100 {
            let mut body = json!({"ResourceArn": arn});
            if !next.is_null() {
                body["NextToken"] = next.take();
            }
            let mut page = call(aws, "ListTagsOfResource", body).await?;
            let found = page["Tags"].as_array().into_iter().flatten();
            tags.extend(found.map(|tag| json!({"key": tag["Key"], "value": tag["Value"]})));
            next = page["NextToken"].take();
            if next.is_null() {
                break;
            }
        }
        spec["tags"] = Value::Array(tags);
        let answer = call(aws, "DescribeTimeToLive", named.clone()).await?;
        let ttl = &answer["TimeToLiveDescription"];
        if ttl["TimeToLiveStatus"] == "ENABLED" || ttl["TimeToLiveStatus"] == "ENABLING" {
            spec["timeToLive"] = json!({"attributeName": ttl["AttributeName"], "enabled": true});
        }
        let answer = call(aws, "DescribeContinuousBackups", named.clone()).await?;
        let recovery = &answer["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"];
        spec["continuousBackups"] =
            json!({"pointInTimeRecoveryEnabled": recovery["PointInTimeRecoveryStatus"] == "ENABLED"});
        // Read only if the object sets them: most tables need neither call.
        let recorded = recorded_fields(object, EXTRAS, &RECORDED);
        if recorded.contains(&"contributorInsights") {
            let answer = call(aws, "DescribeContributorInsights", named).await?;
            let on = matches!(answer["ContributorInsightsStatus"].as_str(), Some("ENABLED" | "ENABLING"));
            spec["contributorInsights"] = json!(if on { "ENABLE" } else { "DISABLE" });
        }
        if recorded.contains(&"resourcePolicy") {
            let read = call(aws, "GetResourcePolicy", json!({"ResourceArn": arn})).await;
            if let Some(answer) = optional(read, &["PolicyNotFoundException"])? {
                spec["resourcePolicy"] = answer["Policy"].clone();
            }
        }
        Ok(Some(Observed { spec, status, arn: Some(arn), pending, failed: None }))
    }

    async fn create(&self, aws: &Session, object: &Object) -> Result<Value> {
        let fields: Vec<_> = DESCRIPTOR
            .spec
            .iter()
            .filter(|field| {
                !["continuousBackups", "contributorInsights", "timeToLive", "tableReplicas", "tags"]
                    .contains(&field.name.as_str())
            })
            .cloned()
            .collect();
        let mut spec = object.spec.clone();
        normalize(&mut spec);
        let mut body = to_json(&fields, &spec, Case::Pascal);
        body["Tags"] = aws_tags(&tags_of(object.spec.get("tags")));
        call(aws, "CreateTable", body).await?;
        Ok(json!({}))
    }

    fn refine(&self, object: &Object, observed: &Observed, changed: &mut Vec<Difference>) {
        let on_demand = object.spec("billingMode") == Some("PAY_PER_REQUEST");
        let text = |value: &Value| value["resourcePolicy"].as_str().unwrap_or_default().to_owned();
        let mut spec = object.spec.clone();
        normalize(&mut spec);
        let indexes = {
            let fields: Vec<_> = DESCRIPTOR
                .spec
                .iter()
                .filter(|field| field.name == "globalSecondaryIndexes")
                .cloned()
                .collect();
            crate::fields::compare(&fields, &spec, &observed.spec).is_empty()
        };
        changed.retain(|difference| match difference.field.as_str() {
            "provisionedThroughput" => !on_demand,
            "globalSecondaryIndexes" => !indexes,
            "resourcePolicy" => !policy::same(&text(&object.spec), &text(&observed.spec)),
            // AWS does not report a disabled stream.
            "streamSpecification" => {
                object.spec["streamSpecification"]["streamEnabled"].as_bool().unwrap_or_default()
                    || observed.spec["streamSpecification"]["streamEnabled"].as_bool().unwrap_or_default()
            }
            "timeToLive" => {
                object.spec["timeToLive"]["enabled"].as_bool().unwrap_or_default()
                    || observed.spec["timeToLive"]["enabled"].as_bool().unwrap_or_default()
            }
            "tableReplicas" => recorded_fields(object, EXTRAS, &RECORDED).contains(&"tableReplicas"),
            "sseSpecification" if difference.path == "sseSpecification.kmsMasterKeyID" => {
                let key =
                    |value: &Value| value["sseSpecification"]["kmsMasterKeyID"].as_str().map(str::to_owned);
                !is_key(key(&object.spec).as_deref(), key(&observed.spec).as_deref())
            }
            // Attributes change with indexes only, and go with them.
            "attributeDefinitions" => !indexes,
            _ => true,
        });
        let insights = observed.spec["contributorInsights"] == "ENABLE";
        if insights && object.spec("contributorInsights").is_none() {
            let field = "contributorInsights".to_owned();
            changed.push(Difference { path: field.clone(), field });
        }
    }

    fn annotations(&self, object: &Object) -> Vec<(&'static str, String)> {
        fields_annotation(EXTRAS, &recorded_fields(object, EXTRAS, &RECORDED))
    }

    async fn update(
        &self,
        aws: &Session,
        object: &Object,
        observed: &Observed,
        changed: &[Difference],
    ) -> Result<()> {
        let name = object.need("tableName");
        let arn = observed.arn.as_deref().unwrap_or_default();
        if differs(changed, "tags") {
            let (add, remove) = tag_changes(object, observed);
            if !remove.is_empty() {
                call(aws, "UntagResource", json!({"ResourceArn": arn, "TagKeys": remove})).await?;
            }
            if !add.is_empty() {
                call(aws, "TagResource", json!({"ResourceArn": arn, "Tags": aws_tags(&add)})).await?;
            }
        }
        if differs(changed, "resourcePolicy") {
            match object.spec("resourcePolicy") {
                Some(policy) => {
                    call(aws, "PutResourcePolicy", json!({"ResourceArn": arn, "Policy": policy})).await?
                }
                None => call(aws, "DeleteResourcePolicy", json!({"ResourceArn": arn})).await?,
            };
        }
        if let Some((message, after)) = &observed.pending {
            return Err(Failure::Wait { after: *after, message: message.clone() });
        }
        if differs(changed, "timeToLive") {
            let enabled = object.spec["timeToLive"]["enabled"].as_bool().unwrap_or_default();
            let attribute = object
                .spec("timeToLive.attributeName")
                .or(observed.spec["timeToLive"]["attributeName"].as_str());
            let specification = json!({"Enabled": enabled, "AttributeName": attribute});
            call(
                aws,
                "UpdateTimeToLive",
                json!({"TableName": name, "TimeToLiveSpecification": specification}),
            )
            .await?;
        }
        if differs(changed, "continuousBackups") {
            let enabled =
                object.spec["continuousBackups"]["pointInTimeRecoveryEnabled"].as_bool().unwrap_or_default();
            let body = json!({"TableName": name,
                "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": enabled}});
            call(aws, "UpdateContinuousBackups", body).await?;
        }
        if differs(changed, "contributorInsights") {
            let action = object.spec("contributorInsights").unwrap_or("DISABLE");
            let body = json!({"TableName": name, "ContributorInsightsAction": action});
            call(aws, "UpdateContributorInsights", body).await?;
        }
        // What UpdateTable takes together.
        let mut body = Map::new();
        let wire = to_json(&DESCRIPTOR.spec, &object.spec, Case::Pascal);
        for (field, parameter) in [
            ("sseSpecification", "SSESpecification"),
            ("tableClass", "TableClass"),
            ("deletionProtectionEnabled", "DeletionProtectionEnabled"),
            ("onDemandThroughput", "OnDemandThroughput"),
            ("provisionedThroughput", "ProvisionedThroughput"),
            ("billingMode", "BillingMode"),
        ] {
            if differs(changed, field) {
                let default = match field {
                    "tableClass" => json!("STANDARD"),
                    "deletionProtectionEnabled" => json!(false),
                    "billingMode" => json!("PROVISIONED"),
                    _ => Value::Null,
                };
                body.insert(parameter.to_owned(), wire.get(parameter).cloned().unwrap_or(default));
            }
        }
        if body.get("BillingMode").is_some_and(|mode| mode == "PROVISIONED") {
            body.insert("ProvisionedThroughput".to_owned(), wire["ProvisionedThroughput"].clone());
        }
        body.retain(|_, value| !value.is_null());
        if !body.is_empty() {
            body.insert("TableName".to_owned(), json!(name));
            call(aws, "UpdateTable", Value::Object(body)).await?;
            return Err(Failure::wait(UPDATING.as_secs(), "table is being updated"));
        }
        if differs(changed, "streamSpecification") {
            let stream = wire.get("StreamSpecification").cloned().unwrap_or(json!({"StreamEnabled": false}));
            call(aws, "UpdateTable", json!({"TableName": name, "StreamSpecification": stream})).await?;
            return Err(Failure::wait(UPDATING.as_secs(), "table is being updated"));
        }
        if differs(changed, "globalSecondaryIndexes") {
            return update_index(aws, object, observed, &wire).await;
        }
        if differs(changed, "tableReplicas")
            && let Some(change) = replicas::next(&DESCRIPTOR.spec, object, observed)
        {
            call(aws, "UpdateTable", json!({"TableName": name, "ReplicaUpdates": [change]})).await?;
            return Err(Failure::wait(UPDATING.as_secs(), "a replica is being changed"));
        }
        Ok(())
    }

    fn translate(&self, failure: Failure) -> Failure {
        match failure.code() {
            // One change of an index at a time.
            Some("LimitExceededException" | "ResourceInUseException") => {
                Failure::Wait { after: UPDATING, message: failure.to_string() }
            }
            _ => failure,
        }
    }

    async fn delete(&self, aws: &Session, object: &Object, observed: &Observed) -> Result<Deletion> {
        let name = object.need("tableName");
        let state = observed.status["tableStatus"].as_str().unwrap_or_default();
        if state == "DELETING" {
            return Ok(Deletion::Pending(Duration::from_secs(5)));
        }
        let desired = object.spec["deletionProtectionEnabled"].as_bool().unwrap_or_default();
        if observed.spec["deletionProtectionEnabled"].as_bool().unwrap_or_default() {
            if desired {
                return Err(Failure::Recoverable(
                    "the table is protected: set spec.deletionProtectionEnabled to false to delete it"
                        .to_owned(),
                ));
            }
            call(aws, "UpdateTable", json!({"TableName": name, "DeletionProtectionEnabled": false})).await?;
        }
        // A table goes after the replicas that it was given.
        if recorded_fields(object, EXTRAS, &RECORDED).contains(&"tableReplicas")
            && let Some(region) = replicas::regions(&observed.spec).first()
        {
            let change = json!({"Delete": {"RegionName": region}});
            call(aws, "UpdateTable", json!({"TableName": name, "ReplicaUpdates": [change]})).await?;
            return Ok(Deletion::Pending(UPDATING));
        }
        optional(call(aws, "DeleteTable", json!({"TableName": name})).await, &[])?;
        Ok(Deletion::Pending(Duration::from_secs(1)))
    }
}

/// Marks tables that had these set, so that their removal is noticed. Replicas that the object never named are others'.
const EXTRAS: &str = "dynamodb.services.k8s.aws/extras";
const RECORDED: [&str; 3] = ["contributorInsights", "resourcePolicy", "tableReplicas"];

/// Makes one change of an index: a removal, a change, or an addition.
async fn update_index(aws: &Session, object: &Object, observed: &Observed, wire: &Value) -> Result<()> {
    let name = object.need("tableName");
    let named = |value: &Value, field: &str| -> Vec<(String, Value)> {
        let items = value[field].as_array().into_iter().flatten();
        let name = if field == "GlobalSecondaryIndexes" { "IndexName" } else { "indexName" };
        items.map(|item| (item[name].as_str().unwrap_or_default().to_owned(), item.clone())).collect()
    };
    let desired = named(wire, "GlobalSecondaryIndexes");
    let seen = named(&observed.spec, "globalSecondaryIndexes");
    let missing = desired.iter().find(|(index, _)| !seen.iter().any(|(other, _)| other == index));
    let surplus = seen.iter().find(|(index, _)| !desired.iter().any(|(other, _)| other == index));
    let mut body = json!({"TableName": name});
    if let Some((index, _)) = surplus {
        body["GlobalSecondaryIndexUpdates"] = json!([{"Delete": {"IndexName": index}}]);
    } else if let Some((_, index)) = missing {
        body["AttributeDefinitions"] = wire["AttributeDefinitions"].clone();
        body["GlobalSecondaryIndexUpdates"] = json!([{"Create": index}]);
    } else {
        let updates = desired.iter().filter_map(|(index, item)| {
            let mut update = json!({"IndexName": index});
            for field in ["ProvisionedThroughput", "OnDemandThroughput"] {
                if let Some(throughput) = item.get(field) {
                    update[field] = throughput.clone();
                }
            }
            (update.as_object()?.len() > 1).then(|| json!({"Update": update}))
        });
        let updates: Vec<_> = updates.collect();
        if updates.is_empty() {
            return Err(Failure::Terminal(
                "the key schema and projection of an index cannot be changed; give the index another name"
                    .to_owned(),
            ));
        }
        body["GlobalSecondaryIndexUpdates"] = Value::Array(updates);
    }
    call(aws, "UpdateTable", body).await?;
    Err(Failure::wait(UPDATING.as_secs(), "an index is being changed"))
}
