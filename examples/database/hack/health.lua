-- Copyright The Ashlar Authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Argo CD: resource.customizations.health.db.example.com_Database in argocd-cm.
-- Without it every Database counts as healthy as soon as it exists.
local health = { status = "Progressing", message = "the operator has not seen this Database yet" }
local status = obj.status
if obj.metadata.deletionTimestamp ~= nil then
  health.message = "being deleted"
end
if status == nil or status.conditions == nil then
  return health
end
local by = {}
for _, condition in ipairs(status.conditions) do
  by[condition.type] = condition
end
local ready = by["Ready"]
if ready ~= nil then
  health.message = ready.reason .. ": " .. ready.message
end
if obj.metadata.deletionTimestamp ~= nil then
  return health
end
if status.observedGeneration ~= obj.metadata.generation then
  health.message = "the operator has not seen the latest change yet"
  return health
end
if by["Stalled"] ~= nil and by["Stalled"].status == "True" then
  health.status = "Degraded"
  health.message = by["Stalled"].reason .. ": " .. by["Stalled"].message
elseif ready ~= nil and ready.status == "True" then
  health.status = "Healthy"
end
return health
